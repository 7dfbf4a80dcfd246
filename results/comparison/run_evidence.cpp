// The evidence of two programs' runs about a metric depends on the order in which they ran. In
// *blocks* (base, head, head, base) a steady drift of the machine cancels out, and each block gives
// a measurement of the change and, by its symmetry, one of no change at all: the null control. In
// *lockstep* both programs are alive at once and move by turns, so they share every moment of the
// machine. Runs that lie *apart* give the two-sample interval, and a change of the machine between
// them looks like a change of the program.
//
// Everything is computed on logarithms, so the change is a ratio and both directions weigh alike.
//
// A loss fingerprint is the hash of a run's losses, bit for bit. Floating-point sums depend on
// their order, so two correct programs give one fingerprint only under equal conditions: the same
// seed, the same plan and number of groups, the same processor, GPUs and library. Where one of
// these differs the fingerprint is not judged, as its change would say nothing about the program.

#include "results/comparison/run_evidence.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <set>

#include "metrics/statistics.hpp"

namespace heteroperf {
namespace {

using Logs = std::vector<double>;
constexpr std::size_t fewest_with_halves = 4;

/// The metric of each run as a logarithm; nothing where one run has no value above 0.
std::optional<Logs> logs_of(const RunSet& set, const RecordMetric& metric) {
  Logs logs;
  for (const RunDigest& run : set.runs) {
    const auto& value = run.metric(metric.name);
    if (!value || !value->number || *value->number <= 0) return std::nullopt;
    logs.push_back(std::log(*value->number));
  }
  return logs;
}

/// Turns a change of the metric into a gain: a lower time is a gain, a lower rate a loss.
double sign_of(const RecordMetric& metric) {
  return metric.direction == MetricDirection::higher ? 1 : -1;
}

LogRatio times(LogRatio ratio, double sign) {
  ratio.mean *= sign;
  return ratio;
}

/// Runs 2k and 2k + 1 of each side form block k: base[2k], head[2k], head[2k + 1], base[2k + 1].
/// The interval that is shown comes from drawing blocks again with replacement.
RunEvidence of_blocks(const Logs& base, const Logs& head, double sign) {
  Logs effects, controls;
  for (std::size_t i = 0; i + 1 < base.size(); i += 2) {
    const AbbaBlock block{base[i], head[i], head[i + 1], base[i + 1]};
    effects.push_back(block.effect());
    controls.push_back(block.control());
  }
  const LogRatio effect = paired_log_ratio(effects);
  const Interval drawn_again =
      bootstrap_interval(effects, [](std::span<const double> drawn) { return mean(drawn); });
  return {{times(effect, sign), paired_log_ratio(controls), effects.size()},
          true,
          std::exp(effect.mean),
          exponential(drawn_again)};
}

/// The null control of runs that lie apart: the first half of each side's runs against the second,
/// each side about its own mean. It is as wide as the effect's own spread, and its mean is 0 unless
/// the machine changed on the way.
LogRatio halves_of(const Logs& base, const Logs& head) {
  Logs early, late;
  for (const Logs* side : {&base, &head}) {
    const double centre = mean(*side);
    for (std::size_t i = 0; i < side->size(); ++i) {
      (2 * i < side->size() ? early : late).push_back((*side)[i] - centre);
    }
  }
  return unpaired_log_ratio(early, late);
}

/// With fewer than 4 runs of a side its halves are too small for a control of their own. Then the
/// control is borrowed: a change of 0 with the spread of the effect, and marked as not measured.
RunEvidence of_sides(const Logs& base, const Logs& head, double sign) {
  const LogRatio effect = unpaired_log_ratio(base, head);
  const std::size_t runs = std::min(base.size(), head.size());
  const bool controlled = runs >= fewest_with_halves;
  const LogRatio borrowed{0, effect.standard_error, effect.degrees};
  return {{times(effect, sign), controlled ? halves_of(base, head) : borrowed, runs},
          controlled,
          std::exp(effect.mean),
          exponential(effect.interval(interval_coverage))};
}

/// Turns measure the time of a step. Both programs do the same samples in a step, so a longer time
/// is a loss of throughput by the same ratio.
RunEvidence of_turns(const std::vector<TurnPair>& pairs) {
  const PairsEvidence turns = combine_pairs(pairs);
  const LogRatio gain = times(turns.effect, -1);
  return {{gain, turns.control, pairs.size()},
          true,
          std::exp(gain.mean),
          exponential(gain.interval(interval_coverage))};
}

/// The order in which the sides ran, 'a' for base and 'b' for head; empty where runs of both sides
/// began in one second.
std::string sequence_of(const RunSet& base, const RunSet& head) {
  std::vector<std::pair<std::string, char>> begins;
  for (const RunDigest& run : base.runs) begins.emplace_back(run.created_utc, 'a');
  for (const RunDigest& run : head.runs) begins.emplace_back(run.created_utc, 'b');
  std::sort(begins.begin(), begins.end());
  std::string sequence;
  for (std::size_t i = 0; i < begins.size(); ++i) {
    const bool tie = i > 0 && begins[i].first == begins[i - 1].first;
    if (tie && begins[i].second != begins[i - 1].second) return {};
    sequence += begins[i].second;
  }
  return sequence;
}

constexpr const char* loss_conditions[] = {"/seeds/run",       "/plan_summary",     "/config/seed",
                                           "/scale/groups",    "/system/cpu/model", "/system/gpus",
                                           "/system/libtorch", "/products/choice"};

}  // namespace

std::size_t RunPairs::blocks() const {
  const std::size_t runs = std::min(base.runs.size(), head.runs.size());
  return order == RunOrder::blocks ? runs / 2 : runs;
}

RunPairs arranged(RunSet base, RunSet head) {
  for (RunSet* side : {&base, &head}) std::ranges::sort(side->runs, {}, &RunDigest::by_date);
  RunPairs pairs{std::move(base), std::move(head), RunOrder::apart};
  const std::string sequence = sequence_of(pairs.base, pairs.head);
  // Fewer than two whole blocks are no order: chance alone often gives one.
  if (sequence.size() < 8) return pairs;
  for (std::size_t i = 0; i < sequence.size(); ++i) {
    if (sequence[i] != "abba"[i % 4]) return pairs;
  }
  // A last block that is not whole is left out, as its runs have no counterpart in time.
  const std::size_t runs = sequence.size() / 4 * 2;
  pairs.base.runs.resize(runs);
  pairs.head.runs.resize(runs);
  pairs.order = RunOrder::blocks;
  return pairs;
}

RunPairs require_pairs(const std::vector<std::filesystem::path>& base,
                       const std::vector<std::filesystem::path>& head, const std::string& name_base,
                       const std::string& name_head) {
  RunSet base_runs = require_runs(base), head_runs = require_runs(head);
  require_disjoint(base_runs, head_runs, name_base, name_head);
  require_comparable(base_runs, head_runs, name_base, name_head);
  return arranged(std::move(base_runs), std::move(head_runs));
}

std::vector<std::string> compared_metrics(const RunPairs& runs) {
  std::vector<std::string> names(compared_metrics().begin(), compared_metrics().end());
  std::set<std::string> of_operators;
  for (const RunSet* side : {&runs.base, &runs.head}) {
    for (const RunDigest& run : side->runs) {
      for (const auto& [name, value] : run.operator_metrics) of_operators.insert(name);
    }
  }
  names.insert(names.end(), of_operators.begin(), of_operators.end());
  return names;
}

std::vector<MetricValue> values_of(const RunSet& set, const RecordMetric& metric) {
  std::vector<MetricValue> values;
  for (const RunDigest& run : set.runs) {
    if (run.metric(metric.name)) values.push_back(*run.metric(metric.name));
  }
  return values;
}

bool all_equal(const std::vector<MetricValue>& values) {
  return std::ranges::adjacent_find(values, std::not_equal_to()) == values.end();
}

bool all_equal(const RunSet& a, const RunSet& b, const RecordMetric& metric) {
  std::vector<MetricValue> values = values_of(a, metric);
  std::ranges::move(values_of(b, metric), std::back_inserter(values));
  return all_equal(values);
}

MetricValue median_of(const std::vector<MetricValue>& values) {
  std::vector<double> numbers;
  for (const MetricValue& value : values) numbers.push_back(value.number.value_or(0));
  const double middle = median(numbers);
  return {fmt::format("{}", middle), middle};
}

/// A leaf that only some of the records have differs too.
std::string why_losses_may_differ(const RunPairs& runs) {
  for (const char* path : loss_conditions) {
    const std::string first = runs.base.runs.front().leaf(path);
    const auto same = [&](const RunDigest& run) { return run.leaf(path) == first; };
    if (!std::ranges::all_of(runs.base.runs, same) || !std::ranges::all_of(runs.head.runs, same)) {
      return std::string(path + 1) + " differs";
    }
  }
  return {};
}

std::optional<RunEvidence> evidence_of(const RunPairs& runs, const RecordMetric& metric) {
  if (runs.order == RunOrder::lockstep && metric.name == std::string("throughput")) {
    if (runs.turns.size() < 2) return std::nullopt;
    return of_turns(runs.turns);
  }
  const auto base = logs_of(runs.base, metric), head = logs_of(runs.head, metric);
  if (!base || !head) return std::nullopt;
  if (runs.order == RunOrder::blocks && runs.blocks() >= 2) {
    return of_blocks(*base, *head, sign_of(metric));
  }
  if (base->size() < 2 || head->size() < 2) return std::nullopt;
  return of_sides(*base, *head, sign_of(metric));
}

}  // namespace heteroperf
