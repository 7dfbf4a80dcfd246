#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "results/comparison/run_comparison.hpp"
#include "results/comparison/run_set.hpp"
#include "results/scaling/scale_curve.hpp"
#include "results/sweep/sweep_index.hpp"

namespace heteroperf {

/// The result of one workload at one point.
struct SweepRow {
  std::string workload;
  std::size_t point = 0;
  std::size_t runs = 0;  ///< runs that have a score
  std::uint64_t devices = 0;
  std::string threads;   ///< per rank, as threads_text()
  std::string crowding;  ///< as crowding_text()
  std::string unit;      ///< the throughput's: "token/s"
  RepeatedRate ops_per_second, throughput;
  double step_time_s = 0;  ///< mean of the medians
  std::string validity;    ///< worst class among the repetitions
  /// Against the row of the fewest devices that differs in nothing but the scale and, unless no two
  /// rows have equally many threads of a rank, not in these; absent where there is no such row with
  /// another number of devices.
  std::optional<double> speedup;           ///< ratio of OPS
  std::optional<RepeatedRate> efficiency;  ///< ratio of OPS per device; not where threads differ
  /// "strong": the same samples per step, "weak": as many per device, "fixed time": a search,
  /// "mixed": neither; "divided": threads of a rank differ; of the row that others are held against
  /// "base".
  std::string scaling;
};

/// A run without a score and why.
struct UnscoredRun {
  std::string folder, state, reason;
};

struct SweepReport {
  std::filesystem::path folder;
  SweepIndex index;
  std::vector<SweepRow> rows;  ///< by workload, then by point
  std::vector<UnscoredRun> unscored;
  std::size_t complete = 0;  ///< runs that are, and whose folders are there
};

/// Reads the records of the complete runs. Those that were edited or are invalid have no score.
SweepReport report_sweep(const std::filesystem::path& folder);

/// Folders of the complete runs at each point, with the point's text; those without any are left
/// out.
struct PointFolders {
  std::string point;
  std::vector<std::filesystem::path> folders;
};
std::vector<PointFolders> complete_points(const std::filesystem::path& folder);

/// As text, as Markdown, as CSV with a row per workload and point (columns with units, in an order
/// that never changes), or as JSON: sweep.json's keys, then `results` and `unscored`.
std::string sweep_report_text(const SweepReport& report, DocumentForm form,
                              const TextStyle& style = {});

/// One workload at one point of two sweeps.
struct PointComparison {
  std::string point, workload;
  RunComparison comparison;
};

/// Two sweeps, point by point.
struct SweepComparison {
  SpeedVerdict verdict = SpeedVerdict::inconclusive;  ///< slower, inconclusive, faster, same: the
                                                      ///< first of these that any point has
  std::vector<PointComparison> points;
  std::vector<std::string> only_a, only_b;  ///< points without complete runs on the other side
};

/// Compares the complete runs of the points that both sweeps have. Throws as require_runs,
/// require_disjoint and require_comparable do, and Error{not_comparable} where they share no point.
SweepComparison compare_sweeps(const std::filesystem::path& a, const std::filesystem::path& b,
                               double margin);

/// As text, as Markdown, or as `heteroperf-sweep-comparison`.
std::string sweep_comparison_text(const SweepComparison& comparison, DocumentForm form,
                                  const TextStyle& style = {});

}  // namespace heteroperf
