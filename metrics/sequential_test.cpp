#include "metrics/sequential_test.hpp"

#include <algorithm>
#include <cmath>

#include "metrics/base/error.hpp"

namespace heteroperf {
namespace {

ChangeVerdict verdict_of(const Evidence& one, const Judgement& judged, const SequentialRule& rule) {
  if (judged.control_alarm) return ChangeVerdict::undecided;
  const double share = rule.share(one.blocks);
  const Interval interval = one.gain.interval(SequentialRule::coverage);
  if (judged.p_adjusted < rule.alpha * share) {
    if (interval.high < -judged.limit) return ChangeVerdict::regression;
    if (interval.low > judged.limit) return ChangeVerdict::improvement;
  }
  const bool cleared = one.gain.interval(1 - rule.miss * share).low > -judged.limit;
  return cleared && rule.can_clear(judged.limit) ? ChangeVerdict::no_regression
                                                 : ChangeVerdict::undecided;
}

std::vector<double> adjusted(std::span<const Evidence> metrics, LogRatio Evidence::*which) {
  std::vector<double> p_values;
  for (const Evidence& one : metrics) p_values.push_back((one.*which).p_value());
  return benjamini_hochberg(p_values);
}

}  // namespace

double SequentialRule::limit(double half_width) const { return std::max(margin, 2 * half_width); }

bool SequentialRule::can_clear(double limit) const { return limit <= std::max(margin, 2 * noise); }

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
    judged.noise = metrics[i].control.half_width(SequentialRule::coverage);
    judged.limit = rule.limit(judged.noise);
    const double share = rule.miss * rule.share(metrics[i].blocks);
    judged.resolution = std::max(-metrics[i].gain.interval(1 - share).low, 2 * judged.noise);
    judged.control_alarm = controls[i] < rule.alpha;
    judged.verdict = verdict_of(metrics[i], judged, rule);
  }
  return all;
}

}  // namespace heteroperf
