#pragma once

#include <optional>
#include <string>
#include <vector>

#include "results/comparison/run_set.hpp"

namespace heteroperf {

/// What entries are ordered by; more is better.
enum class RankKey { ops, ops_per_device, ops_per_peak, regulated, hsr };
RankKey parse_rank_key(const std::string& name);
const char* to_string(RankKey key);

/// One place of a list: the repetitions of one run.
struct RankEntry {
  std::size_t rank = 1;
  bool shared = false;             ///< others have the same rank: the difference is not significant
  const RunDigest* run = nullptr;  ///< the newest repetition
  std::string name;                ///< host, else the run's id
  std::size_t repeats = 1;
  double ops_per_second = 0;
  std::optional<Interval> ops_ci95;  ///< run to run with 2 repetitions or more, else the run's own
  double by = 0;                     ///< what it is ordered by
  bool heterogeneous = false;
  /// OPS per device over that of the smallest run of the same workload, precision and classes.
  std::optional<double> scaling_efficiency;
};

/// Entries of one workload; a list of its own, ranks from 1.
struct RankList {
  std::string workload;
  std::vector<RankEntry> entries;
};

struct ExcludedRecord {
  std::string record;
  std::vector<std::string> reasons;
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
  std::vector<RankList> lists;
  std::vector<ExcludedRecord> excluded;
  std::vector<PublishedScore> published;
};

/// Ranks closed, rankable records whose journal gives their numbers again; all others are excluded
/// with every reason. Repetitions (same key, host, program) make one entry; of two with one seed
/// the later is excluded. Neighbours share a rank where their 95 % intervals, added in quadrature,
/// leave no significant difference to the first of that rank; ties in value go by OPS per peak,
/// then by the earlier date.
RankingReport rank_runs(RunSet runs, RankKey key);

/// AIPerf's results.txt: "Final Score : x GFLOPS". Throws UserError where there is no such line.
PublishedScore read_aiperf_results(const std::filesystem::path& file);

std::string ranking_console_text(const RankingReport& ranking);
/// Columns with units, in an order that never changes; new ones come last.
std::string ranking_csv_text(const RankingReport& ranking);
/// One file without scripts.
std::string ranking_html_text(const RankingReport& ranking);
std::string ranking_json_text(const RankingReport& ranking);

}  // namespace heteroperf
