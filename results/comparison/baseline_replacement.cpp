// A saved baseline is the yardstick of later comparisons, so a new run must not replace it unseen
// when it is worse: the yardstick would sink a little with every save. This file compares the new
// runs with the saved ones key by key (a key is the set of fields that two runs must share to be
// compared) and collects an objection per metric. The hardest objection is the verdict. Keys that
// are not saved yet have nothing to be held against, so they are always allowed.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "results/comparison/baseline_store.hpp"
#include "results/comparison/run_comparison.hpp"
#include "results/text/number_text.hpp"

namespace heteroperf {
namespace {

/// A damaged file of another key does not concern these runs: only the ones that would be replaced
/// stop the save. The name of a saved file carries the key of its run.
void refuse_unusable(const std::vector<SkippedEntry>& skipped, const RunSet& runs) {
  for (const SkippedEntry& skipped_entry : skipped) {
    const std::string name = skipped_entry.path.filename().string();
    const auto replaces = [&](const RunDigest& run) { return has_key_of(name, run); };
    if (std::ranges::none_of(runs.runs, replaces)) continue;
    std::vector<Problem> problems = skipped_entry.problems;
    problems.push_back({"the saved baseline stays", "the new runs cannot be compared with it",
                        "--force replaces it unseen."});
    throw Error(skipped_entry.kind, std::move(problems));
  }
}

RunSet of_key(const RunSet& set, const std::vector<KeyField>& key) {
  RunSet run_set;
  std::ranges::copy_if(set.runs, std::back_inserter(run_set.runs),
                       [&](const RunDigest& run) { return run.key == key; });
  return run_set;
}

/// One metric in words: its name, its change, and the values of both sides.
std::string change_text_of(const MetricComparison& comparison) {
  const RecordMetric& metric = *comparison.metric;
  const bool exact = metric.kind == MetricKind::exact;
  return fmt::format(
      "{} {} ({} instead of {})", metric.name,
      exact ? exact_change_text(comparison.a, comparison.b) : change_text(*comparison.ratio),
      metric_datum(metric, metric.kind, comparison.b, comparison.unit).shown,
      metric_datum(metric, metric.kind, comparison.a, comparison.unit).shown);
}

/// True when the ratio alone lies beyond the threshold on the bad side; the interval is not asked.
/// Both are compared as logarithms, so that a halving weighs as much as a doubling.
bool looks_worse(const MetricComparison& comparison, double threshold) {
  if (comparison.metric->kind == MetricKind::exact || !comparison.ratio || !(*comparison.ratio > 0))
    return false;
  const double gain = std::log(*comparison.ratio);
  const bool higher = comparison.metric->direction == MetricDirection::higher;
  return (higher ? gain : -gain) < std::log1p(-threshold);
}

/// A run that is worse by more needs evidence: single runs differ by as much without a cause.
double unproven_loss(const RunPairs& pairs, double threshold) {
  const bool single = pairs.base.runs.size() < 2 || pairs.head.runs.size() < 2;
  return single ? std::max(threshold, single_run_noise) : threshold;
}

/// Judges the runs of one key against those that are saved of it.
void judge_key(const RunPairs& pairs, double threshold, BaselineReplacement& judged) {
  const auto object = [&](ReplacementVerdict verdict, std::string reason) {
    judged.verdict = std::max(judged.verdict, verdict);
    judged.reasons.push_back(std::move(reason));
  };
  const RunComparison comparison = compare_runs(pairs, threshold);
  if (!comparison.ratio) {
    object(ReplacementVerdict::inconclusive, "throughput is not to be had of both");
  }
  for (const MetricComparison& metric_comparison : comparison.metrics) {
    // A number that may only be equal tells no worse from better.
    if (metric_comparison.verdict == SpeedVerdict::slower) {
      object(ReplacementVerdict::regression, change_text_of(metric_comparison));
    } else if (metric_comparison.verdict == SpeedVerdict::inconclusive &&
               looks_worse(metric_comparison, unproven_loss(pairs, threshold))) {
      object(ReplacementVerdict::inconclusive,
             change_text_of(metric_comparison) +
                 ", and too few or too unsteady runs to tell it from chance");
    }
  }
}

}  // namespace

BaselineReplacement judge_replacement(const std::filesystem::path& home, const RunSet& runs,
                                      double threshold) {
  BaselineReplacement judged;
  if (!std::filesystem::exists(home)) return judged;
  const RunSet saved = find_runs({home});
  refuse_unusable(saved.skipped, runs);
  // Runs of one key are judged together, as repetitions, and each key once.
  std::vector<std::vector<KeyField>> seen;
  for (const RunDigest& run : runs.runs) {
    if (std::find(seen.begin(), seen.end(), run.key) != seen.end()) continue;
    seen.push_back(run.key);
    const RunPairs pairs{of_key(saved, run.key), of_key(runs, run.key)};
    if (!pairs.base.runs.empty()) judge_key(pairs, threshold, judged);
  }
  return judged;
}

}  // namespace heteroperf
