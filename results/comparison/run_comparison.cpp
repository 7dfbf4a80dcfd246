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

#include "metrics/base/name_table.hpp"
#include "metrics/log_ratio.hpp"
#include "metrics/statistics.hpp"
namespace heteroperf {
namespace {

constexpr Named<SpeedVerdict> speed_verdict_names[] = {
    {SpeedVerdict::slower, "slower"},
    {SpeedVerdict::same, "same"},
    {SpeedVerdict::faster, "faster"},
    {SpeedVerdict::inconclusive, "inconclusive"}};
constexpr Named<IntervalBasis> basis_names[] = {{IntervalBasis::runs, "runs"},
                                                {IntervalBasis::within_runs, "within_runs"},
                                                {IntervalBasis::none, "none"}};

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
  const bool ops = metric.name == std::string("ops_per_second");
  const auto interval = run.ci95(ops ? "ops_per_second" : "throughput");
  if (!interval || interval->low <= 0) return std::nullopt;
  return std::log(interval->high / interval->low) / 2;
}

/// Judges one run against one. Runs whose own interval is unknown stay inconclusive.
void judge_single(const RunPairs& runs, double margin, MetricComparison& one) {
  const auto a = own_half_width(runs.base.runs.front(), *one.metric);
  const auto b = own_half_width(runs.head.runs.front(), *one.metric);
  if (!a || !b || !one.ratio || *one.ratio <= 0) return;
  const double mean = std::log(*one.ratio), half = std::hypot(*a, *b);
  const bool higher = one.metric->direction == MetricDirection::higher;
  const Interval gain =
      higher ? Interval{mean - half, mean + half} : Interval{-mean - half, half - mean};
  one.basis = IntervalBasis::within_runs;
  one.ratio_ci95 = Interval{std::exp(mean - half), std::exp(mean + half)};
  one.verdict = verdict_of(gain, higher ? mean : -mean, margin, std::log1p(single_run_noise));
}

/// An exact metric has no interval: a difference is a change, and its direction says if it is for
/// the better. Where it may only be equal the verdict stays open and `changed` tells it.
void judge_exact(const RunPairs& runs, MetricComparison& one) {
  std::vector<MetricValue> values = values_of(runs.base, *one.metric);
  for (MetricValue& value : values_of(runs.head, *one.metric)) values.push_back(std::move(value));
  // Also the runs within a side must not differ.
  one.changed = !all_equal(values);
  if (!one.changed) {
    one.verdict = SpeedVerdict::same;
  } else if (one.metric->direction != MetricDirection::equal && one.a != one.b) {
    one.verdict = is_worse(*one.metric, one.a, one.b) ? SpeedVerdict::slower : SpeedVerdict::faster;
  }
}

/// One metric of both sides; nothing where a side does not have it. Evidence from repeated runs is
/// preferred to the interval of a single one.
std::optional<MetricComparison> compared(const RunPairs& runs, const RecordMetric& metric,
                                         double margin) {
  const auto a = middle_of(runs.base, metric), b = middle_of(runs.head, metric);
  if (!a || !b) return std::nullopt;
  MetricComparison one;
  one.metric = &metric;
  one.unit = runs.base.runs.front().unit_of(metric);
  one.a = *a;
  one.b = *b;
  one.ratio = exact_ratio(*a, *b);
  if (metric.kind == MetricKind::exact) {
    judge_exact(runs, one);
  } else if (const auto evidence = evidence_of(runs, metric)) {
    one.basis = IntervalBasis::runs;
    one.ratio = evidence->ratio;
    one.ratio_ci95 = evidence->ratio_ci95;
    const LogRatio& gain = evidence->evidence.gain;
    one.verdict = verdict_of(gain.interval(interval_coverage), gain.mean, margin, 0);
  } else {
    judge_single(runs, margin, one);
  }
  return one;
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

const char* to_string(SpeedVerdict verdict) { return name_of(speed_verdict_names, verdict); }
const char* to_string(IntervalBasis basis) { return name_of(basis_names, basis); }

RunComparison compare_runs(const RunPairs& runs, double margin) {
  HETEROPERF_EXPECT(!runs.base.runs.empty() && !runs.head.runs.empty());
  RunComparison comparison;
  comparison.runs_a = runs.base.runs.size();
  comparison.runs_b = runs.head.runs.size();
  comparison.name_a = runs.base.runs.front().run_id;
  comparison.name_b = runs.head.runs.front().run_id;
  for (const std::string name : compared_metrics()) {
    auto one = compared(runs, compared_metric(name), margin);
    if (!one) continue;
    const std::string why = name == "loss_fingerprint" ? why_losses_may_differ(runs) : "";
    if (why.empty()) {
      comparison.metrics.push_back(std::move(*one));
    } else {
      comparison.skipped.push_back({name, why});
    }
  }
  for (const MetricComparison& one : comparison.metrics) {
    if (one.metric->name != std::string("throughput")) continue;
    comparison.verdict = one.verdict;
    comparison.ratio = one.ratio;
    comparison.ratio_ci95 = one.ratio_ci95;
    comparison.basis = one.basis;
  }
  comparison.differences = environment_differences(runs.base.runs.front(), runs.head.runs.front());
  comparison.notes = notes_on(runs, comparison.basis);
  return comparison;
}

}  // namespace heteroperf
