#include "metrics/sequential_test.hpp"

#include <algorithm>
#include <cmath>

#include "metrics/error.hpp"

namespace heteroperf {
namespace {

constexpr double shown_coverage = 0.95;
constexpr std::size_t most_foreseen = 1000;

double limit_of(const LogRatio& control, const SequentialRule& rule) {
  return std::max(rule.margin, 2 * control.half_width(shown_coverage));
}

/// Whether noise leaves the limit small enough to clear anything.
bool is_quiet(double limit, const SequentialRule& rule) {
  return limit <= std::max(rule.margin, 2 * rule.noise);
}

ChangeVerdict verdict_of(const Evidence& one, const Judgement& judged, const SequentialRule& rule) {
  if (judged.control_alarm) return ChangeVerdict::undecided;
  const double share = rule.share(one.blocks);
  const Interval interval = one.gain.interval(shown_coverage);
  if (judged.p_adjusted < rule.alpha * share) {
    if (interval.high < -judged.limit) return ChangeVerdict::regression;
    if (interval.low > judged.limit) return ChangeVerdict::improvement;
  }
  const bool cleared = one.gain.interval(1 - rule.miss * share).low > -judged.limit;
  return cleared && is_quiet(judged.limit, rule) ? ChangeVerdict::no_regression
                                                 : ChangeVerdict::undecided;
}

/// The same mean and spread after `blocks` instead of the blocks seen.
LogRatio foreseen(const LogRatio& seen, std::size_t blocks_seen, std::size_t blocks) {
  const double growth = static_cast<double>(blocks) / static_cast<double>(blocks_seen);
  const double free_growth = static_cast<double>(blocks - 1) /
                             static_cast<double>(std::max<std::size_t>(1, blocks_seen - 1));
  return {seen.mean, seen.standard_error / std::sqrt(growth), seen.degrees * free_growth};
}

bool would_settle(const Evidence& one, std::size_t blocks, const SequentialRule& rule) {
  const LogRatio gain = foreseen(one.gain, one.blocks, blocks);
  const double limit = limit_of(foreseen(one.control, one.blocks, blocks), rule);
  const Interval interval = gain.interval(shown_coverage);
  const bool beyond = interval.high < -limit || interval.low > limit;
  return beyond || (interval.low > -limit && is_quiet(limit, rule));
}

/// Widths fall with every block, so what settles once stays settled: bisection.
std::optional<std::size_t> blocks_missing(const Evidence& one, const SequentialRule& rule) {
  std::size_t unsettled = one.blocks, settled = one.blocks + most_foreseen;
  if (!would_settle(one, settled, rule)) return std::nullopt;
  while (settled - unsettled > 1) {
    const std::size_t middle = (unsettled + settled) / 2;
    (would_settle(one, middle, rule) ? settled : unsettled) = middle;
  }
  return settled - one.blocks;
}

std::vector<double> adjusted(std::span<const Evidence> metrics, LogRatio Evidence::*which) {
  std::vector<double> p_values;
  for (const Evidence& one : metrics) p_values.push_back((one.*which).p_value());
  return benjamini_hochberg(p_values);
}

}  // namespace

double SequentialRule::share(std::size_t blocks) const {
  HETEROPERF_EXPECT(fewest_blocks <= most_blocks && blocks >= fewest_blocks);
  if (fewest_blocks == most_blocks) return 1;
  return blocks == fewest_blocks ? 0.5 : 0.5 / static_cast<double>(most_blocks - fewest_blocks);
}

std::vector<Judgement> judge_evidence(std::span<const Evidence> metrics,
                                      const SequentialRule& rule) {
  const std::vector<double> gains = adjusted(metrics, &Evidence::gain);
  const std::vector<double> controls = adjusted(metrics, &Evidence::control);
  std::vector<Judgement> all(metrics.size());
  for (std::size_t i = 0; i < metrics.size(); ++i) {
    Judgement& judged = all[i];
    judged.p_adjusted = gains[i];
    judged.control_p_adjusted = controls[i];
    judged.noise = metrics[i].control.half_width(shown_coverage);
    judged.limit = limit_of(metrics[i].control, rule);
    judged.control_alarm = controls[i] < rule.alpha;
    judged.verdict = verdict_of(metrics[i], judged, rule);
    if (judged.verdict == ChangeVerdict::undecided)
      judged.more_blocks = blocks_missing(metrics[i], rule);
  }
  return all;
}

}  // namespace heteroperf
