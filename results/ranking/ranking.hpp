#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "results/comparison/run_comparison.hpp"

namespace heteroperf {

/// The order of entries; more is better.
enum class RankKey { ops, ops_per_device, ops_per_peak, ops_per_watt, regulated, hsr };
RankKey parse_rank_key(const std::string& name);
const char* to_string(RankKey key);

/// The quality of a power measurement, as the EE HPC Working Group's levels.
enum class PowerLevel { l1 = 1, l2, l3 };

/// A measurement over a run by a meter outside of this program.
struct MeasuredPower {
  double watts = 0;  ///< mean over the run
  PowerLevel level = PowerLevel::l1;
};
/// Measured power of runs by their run_id.
using PowerTable = std::map<std::string, MeasuredPower>;

/// A CSV file with the header run_id,watts,level (1, 2 or 3). Throws UserError with file and line
/// on anything else, a run named twice included.
PowerTable read_power_table(const std::filesystem::path& file);

/// The availability of such a system to others: now, soon, or not at all, as MLPerf's categories.
enum class SystemAvailability { available, preview, research };
constexpr std::array<const char*, 3> value_names(SystemAvailability) {
  return {"available", "preview", "research"};
}
/// The availability of systems by the run_id of their runs.
using AvailabilityTable = std::map<std::string, SystemAvailability>;

/// A CSV file with the header run_id,availability. Throws UserError as read_power_table() does.
AvailabilityTable read_availability_table(const std::filesystem::path& file);

/// Facts about a run that no record holds.
struct RankTables {
  PowerTable power = {};
  AvailabilityTable availability = {};
};

/// Chooses the runs of a list; an empty field takes all. A run whose record does not tell a field
/// passes no filter on it.
struct RankFilter {
  std::string kind = {};  ///< "homogeneous" or "heterogeneous"
  std::string precision = {}, workload = {};
  std::uint64_t fewest_devices = 0, most_devices = UINT64_MAX;
  std::uint64_t fewest_nodes = 0, most_nodes = UINT64_MAX;
  std::optional<SystemAvailability> availability = {};

  bool takes(const RunDigest& run, const AvailabilityTable& table) const;
};

/// One place of a list: the repetitions of one run. Numbers are means over them: geometric, of all
/// repetitions or absent.
struct RankEntry {
  std::size_t rank = 1;
  bool shared = false;  ///< others have the same rank: the difference is not significant
  std::vector<const RunDigest*> runs;  ///< the repetitions by date
  const RunDigest* run = nullptr;      ///< the newest
  std::string name;                    ///< host, else the run's id
  double ops_per_second = 0;
  std::optional<Interval> ops_ci95;  ///< run to run with 2 repetitions or more, else the run's own
  IntervalBasis basis = IntervalBasis::none;  ///< behind `ops_ci95`
  std::optional<double> ops_per_peak, regulated_score, hsr;
  std::string quality;  ///< "accuracy 0.81"
  double by = 0;        ///< the value it is ordered by
  /// Half of `by`'s 95 % interval, as a difference of logarithms.
  std::optional<double> log_half_width;
  bool heterogeneous = false;
  std::optional<MeasuredPower> power;  ///< mean of the repetitions, worst level; of all or none
  std::optional<double> ops_per_watt;
  std::optional<SystemAvailability> availability;  ///< the least of the repetitions; of all or none
  /// OPS per device over that of the smallest run of the same size, precision, machines, and
  /// classes and threads in the same proportions, with as many samples per step or per device;
  /// absent where none is smaller.
  std::optional<double> scaling_efficiency;
  bool replayed = false;  ///< steps of all repetitions were trained again here (`verify --replay`)
};

/// The entries of one workload, with ranks from 1. In the order by regulated score there is a list
/// for each `RunDigest::error_basis`: errors that are known unlike well do not compare.
struct RankList {
  std::string workload;
  std::string error_basis;  ///< empty: ordered by something else
  std::vector<RankEntry> entries;
};

struct ExcludedRecord {
  std::string record;
  std::string workload = {}, run_id = {};  ///< empty where the record cannot be read
  std::vector<std::string> reasons = {};
};

/// A published result of AIPerf: operations counted by another convention, so it has no rank.
struct PublishedScore {
  std::string source;
  double ops_per_second = 0;
  std::optional<double> regulated;
  std::string remark;
};

struct RankingReport {
  RankKey key = RankKey::ops;
  RunSet runs;
  std::size_t filtered = 0;  ///< runs that the filter left out
  std::vector<RankList> lists;
  std::vector<ExcludedRecord> excluded;
  std::vector<PublishedScore> published;
};

/// Ranks closed records whose journal gives their numbers again; all others are excluded
/// with every reason. Repetitions (same key, host, program, setup_of()) make one entry; of two with
/// one seed the later is excluded. Neighbours share a rank where their 95 % intervals, added in
/// quadrature, leave no significant difference to the first of that rank; a single run has to
/// differ by more than `single_run_noise` beyond that. An entry without an interval shares the rank
/// of the one before it, the first one that of the next. Ties in value go by OPS per watt where
/// both are measured, by OPS per peak, then by the earlier date.
RankingReport rank_runs(RunSet runs, RankKey key, const RankFilter& filter = {},
                        const RankTables& tables = {});

/// AIPerf's results.txt: "Final Score : x GFLOPS". Throws UserError where there is no such line.
PublishedScore read_aiperf_results(const std::filesystem::path& file);

/// `heteroperf-ranking`.
Document ranking_document(const RankingReport& ranking);
/// The ranking as that document, as text, as CSV whose columns never change (new ones come
/// last), or as one HTML file without scripts.
std::string ranking_text(const RankingReport& ranking, DocumentForm form,
                         const TextStyle& style = {});

/// The metric of a record that an order is made of. OPS per device and per watt are OPS over a
/// constant of the entry, so they have the spread of OPS.
const char* metric_of(RankKey key);

/// One entry of repetitions, by date; at least one.
RankEntry make_entry(const std::vector<const RunDigest*>& repeats, RankKey key,
                     const RankTables& tables);

/// Sorts, and gives ranks from 1.
void give_ranks(std::vector<RankEntry>& entries);
/// Gives `scaling_efficiency` where an entry has a smaller run of its own system.
void give_efficiency(std::vector<RankEntry>& entries);

}  // namespace heteroperf
