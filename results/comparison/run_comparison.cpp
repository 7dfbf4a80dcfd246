// Compares two sides metric by metric. Where the runs carry evidence, the change is an interval of
// the logarithm of the ratio, and the verdict comes from the interval and a margin: a change inside
// the margin is none, one beyond it is called only when the interval excludes chance. With one run
// on a side there is no spread between runs, so the interval is made of how steady each run was,
// which is too narrow; therefore a flat allowance for the noise between runs is added. The verdict
// on throughput is that of the whole comparison.

#include "results/comparison/run_comparison.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "metrics/log_ratio.hpp"
#include "metrics/statistics.hpp"

namespace heteroperf {
namespace {

/// One value for a side: the median of a statistical metric, the first value of an exact one;
/// nothing where a run lacks the metric.
std::optional<MetricValue> middle_of(const RunSet& set, const RecordMetric& metric) {
  const std::vector<MetricValue> values = values_of(set, metric);
  if (values.size() < set.runs.size()) return std::nullopt;
  const bool exact = metric.kind == MetricKind::exact || !values.front().number;
  return exact ? values.front() : median_of(values);
}

/// The verdict on the gain of B, an interval of logarithms that is positive for the better. `mean`
/// is its middle, `margin` the fraction below which a change is none, `allowance` the logarithm by
/// which single runs may differ without a cause; with an allowance nothing can be called the same.
SpeedVerdict verdict_of(const Interval& gain, double mean, double margin, double allowance) {
  const double inside = -std::log1p(-margin);
  if (gain.low > -inside && gain.high < inside && allowance == 0) return SpeedVerdict::same;
  if (gain.high < -allowance && mean < -inside) return SpeedVerdict::slower;
  if (gain.low > allowance && mean > inside) return SpeedVerdict::faster;
  return SpeedVerdict::inconclusive;
}

/// Half width of one run's own interval, as a difference of logarithms.
std::optional<double> own_half_width(const RunDigest& run, const RecordMetric& metric) {
  // A step's time is as steady as the throughput that it makes.
  const std::string name = metric.name;
  const bool has_its_own = name == "ops_per_second" || is_operator_metric(name);
  const auto interval = run.ci95(has_its_own ? name : "throughput");
  if (!interval || interval->low <= 0) return std::nullopt;
  return std::log(interval->high / interval->low) / 2;
}

/// Judges one run against one. Runs whose own interval is unknown stay inconclusive.
void judge_single(const RunPairs& runs, double margin, MetricComparison& comparison) {
  const auto a = own_half_width(runs.base.runs.front(), *comparison.metric);
  const auto b = own_half_width(runs.head.runs.front(), *comparison.metric);
  if (!a || !b || !comparison.ratio || *comparison.ratio <= 0) return;
  const double mean = std::log(*comparison.ratio), half = std::hypot(*a, *b);
  const bool higher = comparison.metric->direction == MetricDirection::higher;
  const Interval gain =
      higher ? Interval{mean - half, mean + half} : Interval{-mean - half, half - mean};
  comparison.basis = IntervalBasis::within_runs;
  comparison.ratio_ci95 = Interval{std::exp(mean - half), std::exp(mean + half)};
  comparison.verdict =
      verdict_of(gain, higher ? mean : -mean, margin, std::log1p(single_run_noise));
}

/// An exact metric has no interval: a difference is a change, and its direction says if it is for
/// the better. Where it may only be equal the verdict stays open and `changed` tells it.
void judge_exact(const RunPairs& runs, MetricComparison& comparison) {
  // Also the runs within a side must not differ.
  comparison.changed = !all_equal(runs.base, runs.head, *comparison.metric);
  if (!comparison.changed) {
    comparison.verdict = SpeedVerdict::same;
  } else if (comparison.metric->direction != MetricDirection::equal &&
             comparison.a != comparison.b) {
    comparison.verdict = is_worse(*comparison.metric, comparison.a, comparison.b)
                             ? SpeedVerdict::slower
                             : SpeedVerdict::faster;
  }
}

/// One metric of both sides; nothing where a side does not have it. Evidence from repeated runs is
/// preferred to the interval of a single one.
std::optional<MetricComparison> compared(const RunPairs& runs, const RecordMetric& metric,
                                         double margin) {
  const auto a = middle_of(runs.base, metric), b = middle_of(runs.head, metric);
  if (!a || !b) return std::nullopt;
  MetricComparison comparison;
  comparison.metric = &metric;
  comparison.unit = runs.base.runs.front().unit_of(metric);
  comparison.a = *a;
  comparison.b = *b;
  comparison.ratio = exact_ratio(*a, *b);
  if (metric.kind == MetricKind::exact) {
    judge_exact(runs, comparison);
  } else if (const auto evidence = evidence_of(runs, metric)) {
    comparison.basis = IntervalBasis::runs;
    comparison.ratio = evidence->ratio;
    comparison.ratio_ci95 = evidence->ratio_ci95;
    const LogRatio& gain = evidence->evidence.gain;
    comparison.verdict = verdict_of(gain.interval(interval_coverage), gain.mean, margin, 0);
  } else {
    judge_single(runs, margin, comparison);
  }
  return comparison;
}

/// Sentences that keep a reader from trusting the interval too far.
std::vector<std::string> notes_on(const RunPairs& runs, IntervalBasis basis) {
  std::vector<std::string> notes;
  if (basis == IntervalBasis::within_runs) {
    notes.push_back(
        fmt::format("one run on a side: the interval is how steady that run was; runs differ more, "
                    "so only changes beyond {:.0f} % are called",
                    100 * single_run_noise));
  }
  if (basis == IntervalBasis::none) notes.push_back("too short or too few runs for an interval");
  if (runs.order == RunOrder::apart && basis == IntervalBasis::runs) {
    notes.push_back(
        "the runs were not interleaved: what changed on the machine between them "
        "cannot be told from a change of the program");
  }
  return notes;
}

}  // namespace

RunComparison compare_runs(const RunPairs& runs, double margin) {
  HETEROPERF_EXPECT(!runs.base.runs.empty() && !runs.head.runs.empty());
  RunComparison comparison;
  comparison.runs_a = runs.base.runs.size();
  comparison.runs_b = runs.head.runs.size();
  comparison.name_a = runs.base.runs.front().run_id;
  comparison.name_b = runs.head.runs.front().run_id;
  for (const std::string& name : compared_metrics(runs)) {
    auto difference = compared(runs, compared_metric(name), margin);
    if (!difference) continue;
    const std::string why = name == "loss_fingerprint" ? why_losses_may_differ(runs) : "";
    if (why.empty()) {
      comparison.metrics.push_back(std::move(*difference));
    } else {
      comparison.skipped.push_back({name, why});
    }
  }
  for (const MetricComparison& metric : comparison.metrics) {
    if (metric.metric->name != std::string("throughput")) continue;
    static_cast<JudgedRatio&>(comparison) = metric;
  }
  comparison.differences = environment_differences(runs.base.runs.front(), runs.head.runs.front());
  comparison.notes = notes_on(runs, comparison.basis);
  return comparison;
}

}  // namespace heteroperf
