#include "metrics/score.hpp"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "metrics/base/error.hpp"

namespace heteroperf {

OpsPerSecond ops_per_second(const WindowTotal& total) {
  HETEROPERF_EXPECT(total.window > Seconds(0));
  return OpsPerSecond(total.operations.to_double() / total.window.value());
}

OpsPerSecond suite_ops_per_second(std::span<const WindowTotal> totals) {
  HETEROPERF_EXPECT(!totals.empty());
  WindowTotal sum;
  for (const WindowTotal& total : totals) {
    HETEROPERF_EXPECT(total.window > Seconds(0));
    sum.operations += total.operations;
    sum.window += total.window;
  }
  return ops_per_second(sum);
}

std::optional<double> heterogeneous_speed_ratio(double mix, double sum_of_classes) {
  return sum_of_classes > 0 ? std::optional(mix / sum_of_classes) : std::nullopt;
}

std::optional<double> performance_portability(std::span<const std::optional<double>> efficiencies) {
  double inverses = 0;
  for (const std::optional<double>& efficiency : efficiencies) {
    if (!efficiency) return 0;
    inverses += 1 / *efficiency;
  }
  if (efficiencies.empty()) return std::nullopt;
  return static_cast<double>(efficiencies.size()) / inverses;
}

std::vector<double> micro_batch_rates(std::span<const TimedPass> passes) {
  std::vector<double> rates;
  for (std::size_t turn = 0; !passes.empty(); ++turn) {
    double seconds = 0;
    for (const TimedPass& pass : passes) {
      if (turn == pass.turns_s.size()) return rates;
      seconds += static_cast<double>(pass.count) * pass.turns_s[turn];
    }
    rates.push_back(1 / seconds);
  }
  return rates;
}

std::optional<OpsPerSecond> regulated_score(OpsPerSecond ops, double error_rate) {
  HETEROPERF_EXPECT(error_rate >= 0 && error_rate <= 1);
  if (error_rate == 0) return std::nullopt;
  // 0 − x and not −x: an error of 1 scores 0, not −0.
  return ops * (0 - natural_log(error_rate));
}

std::uint64_t FinalEvaluation::most_generated_samples() const {
  return goes_on_to_errors() ? std::max(asked_samples, most_generated_answers) : asked_samples;
}

Interval error_interval(std::uint64_t wrong, std::uint64_t answers) {
  HETEROPERF_EXPECT(answers > 0 && wrong <= answers);
  constexpr double normal_97_5_quantile = 1.959963984540054;
  constexpr double square = normal_97_5_quantile * normal_97_5_quantile;
  const auto k = static_cast<double>(wrong), n = static_cast<double>(answers);
  const double centre = (k + square / 2) / (n + square);
  const double half_width =
      normal_97_5_quantile / (n + square) * std::sqrt(k * (n - k) / n + square / 4);
  return {std::max(0.0, centre - half_width), std::min(1.0, centre + half_width)};
}

namespace {

double comparable(double loss) {
  return std::isnan(loss) ? std::numeric_limits<double>::infinity() : loss;
}

}  // namespace

bool better(const Score& a, const Score& b) {
  if (a.usable != b.usable || !a.usable) return a.usable && !b.usable;
  return std::tuple(a.steps, a.quality, -comparable(a.loss)) >
         std::tuple(b.steps, b.quality, -comparable(b.loss));
}

}  // namespace heteroperf
