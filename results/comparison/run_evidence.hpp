#pragma once

#include <optional>
#include <string>
#include <vector>

#include "metrics/sequential_test.hpp"
#include "metrics/turn_pairs.hpp"
#include "results/comparison/run_set.hpp"

namespace heteroperf {

/// The order in time of the runs of two programs.
enum class RunOrder {
  blocks,  ///< base, head, head, base, and so on: run 2k and 2k + 1 of each side are block k
  /// Both alive at once and moved by turns: run k of each side is pair k.
  lockstep,
  apart,  ///< not measured together; what the machine did between them counts as a change
};
constexpr std::array<const char*, 3> value_names(RunOrder) {
  return {"interleaved", "lockstep", "apart"};
}

/// Runs of two programs, each side by date.
struct RunPairs {
  RunSet base, head;
  RunOrder order = RunOrder::apart;
  std::vector<TurnPair> turns = {};  ///< in lockstep: the turns of each pair

  std::size_t blocks() const;  ///< pairs in lockstep; runs of the smaller side when `apart`
};

/// Puts each side by date and finds out the order; of blocks as many whole ones as there are, and
/// no other run.
RunPairs arranged(RunSet base, RunSet head);
/// The runs below `base` and `head` arranged. Throws as require_runs(), require_disjoint() and
/// require_comparable().
RunPairs require_pairs(const std::vector<std::filesystem::path>& base,
                       const std::vector<std::filesystem::path>& head, const std::string& name_base,
                       const std::string& name_head);

/// The names of the metrics that the runs are compared by: those of all records, then those of
/// operators that a run has.
std::vector<std::string> compared_metrics(const RunPairs& runs);

/// A metric that was not judged, and why.
struct SkippedMetric {
  std::string name, reason;
};

/// The metric of the runs that have it, in their order.
std::vector<MetricValue> values_of(const RunSet& set, const RecordMetric& metric);
/// The median of numbers; its text has all digits of the double.
MetricValue median_of(const std::vector<MetricValue>& values);
/// An empty list is equal too.
bool all_equal(const std::vector<MetricValue>& values);
/// Says the same about the metric of all runs of both sets.
bool all_equal(const RunSet& a, const RunSet& b, const RecordMetric& metric);

/// Returns in words the first condition that differs among the runs of both sides, or an empty
/// text. Losses agree bit for bit only from one seed, in one order of sums, on one processor.
std::string why_losses_may_differ(const RunPairs& runs);

/// The evidence of the runs about one statistical metric.
struct RunEvidence {
  Evidence evidence;        ///< its gain positive for the better, whatever the metric's direction
  bool controlled = false;  ///< the control is a measurement, not borrowed from the gain's spread
  double ratio = 1;         ///< head / base, geometric mean
  Interval ratio_ci95;      ///< for blocks by bootstrap, else by Student's t
};

/// The evidence of the runs about a metric; in lockstep the throughput is that of the turns.
/// Nothing is returned where a run lacks the metric, where a value is not above 0, or where a side
/// has fewer than 2 runs.
std::optional<RunEvidence> evidence_of(const RunPairs& runs, const RecordMetric& metric);

}  // namespace heteroperf
