#include "metrics/steady_window.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "metrics/base/error.hpp"

// The window is found by ranks alone: while the first steps that are left are slower than the later
// ones (one-sided Mann-Whitney tests), one more step is cut, up to half of all. Ranks need no model
// of the noise, and integers make the answer the same everywhere.

namespace heteroperf {
namespace {

using Durations = std::span<const std::int64_t>;
__extension__ using Wide = __int128;

// These are squared one-sided critical values of the normal distribution, in 1/10000.
constexpr Wide squared_5_percent = 27055;
constexpr Wide squared_1_percent = 54119;
/// As many first steps are compared with all others: a short warm-up shows in them alone.
constexpr std::array<std::size_t, 3> head_lengths{2, 4, 8};
constexpr std::size_t most_candidates = 32;  ///< bounds the cost for long runs

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

SteadyWindow find_steady_window(std::span<const std::int64_t> step_durations_ns,
                                const WarmupRule& rule) {
  HETEROPERF_EXPECT(rule.fewest_fraction >= 0 && rule.fewest_fraction <= 0.5);
  const std::size_t steps = step_durations_ns.size();
  const std::size_t most = steps / 2;
  const auto by_fraction =
      static_cast<std::size_t>(std::ceil(rule.fewest_fraction * static_cast<double>(steps)));
  std::size_t cut = std::min(most, std::max(rule.fewest_steps, by_fraction));
  const std::size_t stride = std::max<std::size_t>(1, most / most_candidates);
  while (has_downward_trend(step_durations_ns.subspan(cut))) {
    if (cut == most) return {cut, WarmupEnd::still_warming};
    cut = std::min(most, cut + stride);
  }
  return {cut, WarmupEnd::settled};
}

}  // namespace heteroperf
