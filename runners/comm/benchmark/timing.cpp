#include "runners/comm/benchmark/timing.hpp"

#include <algorithm>
#include <cmath>

#include "metrics/base/clock.hpp"
#include "metrics/statistics.hpp"

namespace heteroperf {
namespace {

constexpr int least_iterations = 7;
constexpr int most_iterations = 5000;

double seconds_of(const std::function<void()>& call) {
  const Stopwatch stopwatch;
  call();
  return stopwatch.elapsed_s();
}

/// All ranks decide alike: by the slowest one's last warm-up call.
int iterations_for(Communicator& group, double call_s, const TimingConfig& config) {
  if (config.iterations > 0) return config.iterations;
  group.all_reduce(std::span(&call_s, 1), Reduction::max);
  const double fit = config.budget.value() / std::max(call_s, 1e-9);
  return static_cast<int>(std::clamp<double>(fit, least_iterations, most_iterations));
}

/// Ranks (from 0) of the order statistics around the median: binomial, normal approximation.
Interval median_interval(const std::vector<double>& sorted) {
  const double n = static_cast<double>(sorted.size());
  const double reach = 1.96 * std::sqrt(n) / 2;
  const double low = std::floor(n / 2 - reach), high = std::ceil(n / 2 + reach);
  const auto at = [&](double index) {
    return sorted[static_cast<std::size_t>(std::clamp(index, 0.0, n - 1))];
  };
  return {at(low), at(high)};
}

}  // namespace

CallTime summarise(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  CallTime time;
  time.median = Seconds(median(seconds));
  time.fastest = Seconds(seconds.front());
  time.p95 = Seconds(quantile(seconds, 0.95));
  time.ci95 = median_interval(seconds);
  time.iterations = seconds.size();
  return time;
}

CallTime time_calls(Communicator& group, const std::function<void()>& call,
                    const TimingConfig& config) {
  double last_s = 0;
  group.barrier();
  for (int i = 0; i < std::max(config.warmup, 1); ++i) last_s = seconds_of(call);
  std::vector<double> seconds(static_cast<std::size_t>(iterations_for(group, last_s, config)));
  group.barrier();
  for (double& second : seconds) second = seconds_of(call);
  group.all_reduce(std::span<double>(seconds), Reduction::max);
  return summarise(std::move(seconds));
}

}  // namespace heteroperf
