#pragma once

#include <optional>
#include <string>
#include <vector>

#include "results/comparison/run_evidence.hpp"

namespace heteroperf {

enum class SpeedVerdict { slower, same, faster, inconclusive };
constexpr std::array<const char*, 4> value_names(SpeedVerdict) {
  return {"slower", "same", "faster", "inconclusive"};
}

/// The values that an interval is made of.
enum class IntervalBasis {
  runs,         ///< run to run, by Student's t (blocks: by bootstrap)
  within_runs,  ///< one run per side: how that run varied, which is less than runs do
  none,
};
constexpr std::array<const char*, 3> value_names(IntervalBasis) {
  return {"runs", "within_runs", "none"};
}

/// The spread of throughput between runs on a shared machine: one run per side is allowed this
/// much.
inline constexpr double single_run_noise = 0.25;

/// The change from A to B.
struct JudgedRatio {
  SpeedVerdict verdict = SpeedVerdict::inconclusive;  ///< on B, in the metric's direction
  std::optional<double> ratio = {};
  std::optional<Interval> ratio_ci95 = {};
  IntervalBasis basis = IntervalBasis::none;
};

/// One metric of two sides.
struct MetricComparison : JudgedRatio {
  const RecordMetric* metric = nullptr;
  std::string unit;      ///< as A's record says: "token/s"
  MetricValue a, b;      ///< medians
  bool changed = false;  ///< exact metrics
};

/// The comparison of side B with side A, which is the base; its change is the throughput's.
struct RunComparison : JudgedRatio {
  std::size_t runs_a = 0, runs_b = 0;
  std::string name_a, name_b;
  std::vector<MetricComparison> metrics;
  std::vector<SkippedMetric> skipped;
  std::vector<EnvironmentDifference> differences;
  std::vector<std::string> notes;
};

/// Compares runs that are comparable; each side has at least one. `margin` is the fraction below
/// which a change is none: "same" needs the whole interval inside it, "slower" and "faster" the
/// interval on one side of 0 and the ratio outside the margin. With one run per side only changes
/// beyond single_run_noise are called.
RunComparison compare_runs(const RunPairs& runs, double margin);

/// `heteroperf-comparison`.
Document comparison_document(const RunComparison& comparison);

/// Adds what was not judged ("not compared: NAME (reason)") and what else differs.
void add_skipped(Document& document, const char* word, const std::vector<SkippedMetric>& skipped);
void add_differences(Document& document, const std::vector<EnvironmentDifference>& differences);

}  // namespace heteroperf
