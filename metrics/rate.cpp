#include "metrics/rate.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "metrics/base/error.hpp"

// The rate of a window is exact; its interval has to be estimated, because neighbouring steps are
// correlated (caches, clocks, other processes). So the window is cut into equal *sub-windows*, and
// the circular block bootstrap draws *blocks* of neighbouring sub-windows. With so few blocks its
// percentile interval is too narrow, and widening() brings it to the width of Student's.

namespace heteroperf {

namespace {

constexpr std::size_t fewest_sub_windows = 10;
constexpr std::size_t most_sub_windows = 64;
constexpr std::size_t steps_per_sub_window = 4;

__extension__ using Wide = __int128;

std::int64_t boundary(TimeWindow window, std::size_t part, std::size_t count) {
  const Wide length = window.end_ns - window.start_ns;
  return window.start_ns +
         static_cast<std::int64_t>(length * static_cast<Wide>(part) / static_cast<Wide>(count));
}

/// The part that holds moment `t_ns`; a moment on a boundary belongs to the part before it.
std::size_t part_of(TimeWindow window, std::int64_t t_ns, std::size_t count) {
  const Wide length = window.end_ns - window.start_ns;
  const Wide offset = std::max<Wide>(t_ns - window.start_ns, 1);
  auto part = static_cast<std::size_t>((offset * static_cast<Wide>(count) - 1) / length);
  part = std::min(part, count - 1);
  while (part > 0 && boundary(window, part, count) >= t_ns) --part;
  while (part + 1 < count && boundary(window, part + 1, count) < t_ns) ++part;
  return part;
}

/// Adds a step's amount to the parts of the window in which it ran.
void share(const StepWork& step, TimeWindow window, std::span<double> parts) {
  const std::int64_t start_ns = std::max(step.start_ns, window.start_ns);
  const std::size_t last = part_of(window, step.end_ns, parts.size());
  if (start_ns >= step.end_ns) {
    parts[last] += step.amount;
    return;
  }
  const auto duration = static_cast<double>(step.end_ns - start_ns);
  for (std::size_t i = part_of(window, start_ns, parts.size()); i <= last; ++i) {
    const std::int64_t from = std::max(start_ns, boundary(window, i, parts.size()));
    const std::int64_t to = std::min(step.end_ns, boundary(window, i + 1, parts.size()));
    if (to > from) parts[i] += step.amount * (static_cast<double>(to - from) / duration);
  }
}

std::size_t count_finished(std::span<const StepWork> steps, TimeWindow window) {
  return static_cast<std::size_t>(std::count_if(
      steps.begin(), steps.end(), [&](const StepWork& s) { return window.contains(s.end_ns); }));
}

/// Returns about the cube root, the optimal growth for the block bootstrap of a mean (Künsch 1989).
int block_length_for(std::size_t values) {
  int length = 1;
  while (static_cast<std::size_t>(length + 1) * (length + 1) * (length + 1) <= values) ++length;
  return length;
}

/// The 97.5 % quantiles of Student's t for 1, 2, … degrees of freedom.
constexpr std::array<double, 20> student_quantiles{12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365,
                                                   2.306,  2.262, 2.228, 2.201, 2.179, 2.160, 2.145,
                                                   2.131,  2.120, 2.110, 2.101, 2.093, 2.086};
constexpr double normal_quantile = 1.960;

/// Returns the factor that makes a percentile interval as wide as Student's. A percentile interval
/// from n values in blocks of l behaves like ± z · s / sqrt(m) with m = n / l blocks and s too
/// small by sqrt((n − l) / n); Student's interval is ± t · s / sqrt(m).
double widening(std::size_t values, std::size_t block_length, double student_quantile) {
  const auto n = static_cast<double>(values);
  return std::sqrt(n / (n - static_cast<double>(block_length))) * student_quantile /
         normal_quantile;
}

/// Chooses how many sub-windows the steps fill that end in the window; nothing for too few steps.
std::optional<std::size_t> sub_windows_for(std::span<const StepWork> steps, TimeWindow window) {
  const std::size_t finished = count_finished(steps, window);
  if (finished < fewest_sub_windows) return std::nullopt;
  return std::clamp(finished / steps_per_sub_window, fewest_sub_windows, most_sub_windows);
}

/// Bootstraps the rate over `count` sub-windows, and stretches the interval about it.
Interval resampled_rate(std::span<const StepWork> steps, TimeWindow window, std::size_t count,
                        const BootstrapSettings& settings, double stretch) {
  const std::vector<double> parts = sub_window_amounts(steps, window, count);
  const double seconds = window.seconds();
  const auto total_rate = [seconds](std::span<const double> amounts) {
    return mean(amounts) * static_cast<double>(amounts.size()) / seconds;
  };
  const Interval drawn = bootstrap_interval(parts, total_rate, settings);
  const double rate = total_rate(parts);
  return Interval{std::max(0.0, rate - (rate - drawn.low) * stretch),
                  rate + (drawn.high - rate) * stretch};
}

}  // namespace

double rate_per_second(std::span<const StepWork> steps, TimeWindow window) {
  HETEROPERF_EXPECT(window.end_ns > window.start_ns);
  double total = 0;
  for (const StepWork& step : steps) {
    if (window.contains(step.end_ns)) total += step.amount;
  }
  return total / window.seconds();
}

std::vector<double> sub_window_amounts(std::span<const StepWork> steps, TimeWindow window,
                                       std::size_t count) {
  HETEROPERF_EXPECT(window.end_ns > window.start_ns && count > 0);
  std::vector<double> parts(count, 0.0);
  for (const StepWork& step : steps) {
    if (window.contains(step.end_ns)) share(step, window, parts);
  }
  return parts;
}

std::optional<Interval> rate_interval(std::span<const StepWork> steps, TimeWindow window,
                                      std::uint64_t seed) {
  const auto count = sub_windows_for(steps, window);
  if (!count) return std::nullopt;
  const int length = block_length_for(*count);
  const std::size_t blocks = *count / static_cast<std::size_t>(length);
  const double t = student_quantiles[std::min(blocks - 1, student_quantiles.size()) - 1];
  return resampled_rate(steps, window, *count, {.seed = seed, .block_length = length},
                        widening(*count, length, t));
}

std::optional<Interval> rate_interval_in_blocks(std::span<const StepWork> steps, TimeWindow window,
                                                const BlockedInterval& settings) {
  HETEROPERF_EXPECT(settings.blocks >= 3);
  const auto count = sub_windows_for(steps, window);
  if (!count) return std::nullopt;
  const std::size_t length = std::max<std::size_t>(1, *count / settings.blocks);
  const double t =
      even_student_t_quantile(settings.coverage, static_cast<int>(*count / length) - 1);
  return resampled_rate(steps, window, *count, {.block_length = static_cast<int>(length)},
                        widening(*count, length, t));
}

// The window is found by ranks alone: while the first steps that are left are slower than the later
// ones (one-sided Mann-Whitney tests), one more step is cut, up to half of all. Ranks need no model
// of the noise, and integers make the answer the same everywhere.

namespace {

using Durations = std::span<const std::int64_t>;

// These are squared one-sided critical values of the normal distribution, in 1/10000.
constexpr Wide squared_5_percent = 27055;
constexpr Wide squared_1_percent = 54119;
/// As many first steps are compared with all others: a short warm-up shows in them alone.
constexpr std::array<std::size_t, 3> head_lengths{2, 4, 8};
constexpr std::size_t most_candidates = 32;  ///< bounds the cost for long runs
constexpr std::size_t fewest_warmup_steps = 2;

/// Returns twice the Mann-Whitney count: 2 for each pair (a, b) with a > b, 1 for each tie.
Wide twice_wins(Durations first, Durations second) {
  std::vector<std::int64_t> sorted(second.begin(), second.end());
  std::sort(sorted.begin(), sorted.end());
  Wide wins = 0;
  for (std::int64_t value : first) {
    const auto [lower, upper] = std::equal_range(sorted.begin(), sorted.end(), value);
    wins += (lower - sorted.begin()) + (upper - sorted.begin());
  }
  return wins;
}

/// Decides the one-sided Mann-Whitney test by the normal approximation without a correction for
/// ties: with counts a and b, 2U has mean ab and variance ab(a + b + 1) / 3.
bool is_slower(Durations first, Durations second, Wide critical_squared) {
  const auto a = static_cast<Wide>(first.size()), b = static_cast<Wide>(second.size());
  const Wide excess = twice_wins(first, second) - a * b;
  return excess > 0 && excess * excess * 3 * 10000 > critical_squared * a * b * (a + b + 1);
}

bool has_downward_trend(Durations steps) {
  const std::size_t half = steps.size() / 2;
  if (half == 0) return false;
  if (is_slower(steps.first(half), steps.last(half), squared_5_percent)) return true;
  return std::any_of(head_lengths.begin(), head_lengths.end(), [&](std::size_t head) {
    return 4 * head <= steps.size() &&
           is_slower(steps.first(head), steps.subspan(head), squared_1_percent);
  });
}

}  // namespace

std::uint64_t warmup_steps_of_run(std::uint64_t asked, std::uint64_t last_step,
                                  std::uint64_t steps_before) {
  if (last_step == 0) return asked;
  return std::min(asked, (last_step - std::min(steps_before, last_step)) / 2);
}

SteadyWindow find_steady_window(std::span<const std::int64_t> step_durations_ns) {
  const std::size_t most = step_durations_ns.size() / 2;
  std::size_t cut = std::min(most, fewest_warmup_steps);
  const std::size_t stride = std::max<std::size_t>(1, most / most_candidates);
  while (has_downward_trend(step_durations_ns.subspan(cut))) {
    if (cut == most) return {cut, WarmupEnd::still_warming};
    cut = std::min(most, cut + stride);
  }
  return {cut, WarmupEnd::settled};
}

}  // namespace heteroperf
