#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "metrics/bootstrap.hpp"

namespace heteroperf {

/// What one step did: `amount` operations (or samples, or tokens) between two moments of one clock.
/// Steps of different groups of ranks may overlap.
struct StepWork {
  std::int64_t start_ns = 0, end_ns = 0;
  double amount = 0;
};

/// From `start_ns` (excluded) to `end_ns`; must not be empty.
struct TimeWindow {
  std::int64_t start_ns = 0, end_ns = 0;

  double seconds() const { return static_cast<double>(end_ns - start_ns) * 1e-9; }
  bool contains(std::int64_t t_ns) const { return start_ns < t_ns && t_ns <= end_ns; }
};

/// Amounts of the steps that end in the window / its length.
double rate_per_second(std::span<const StepWork> steps, TimeWindow window);

/// The amounts of the steps that end in the window, per each of `count` equal parts of it. The
/// amount of a step that lies in several parts is shared by time; what a step did before the window
/// counts in its part inside, so that the sum is the numerator of `rate_per_second`.
std::vector<double> sub_window_amounts(std::span<const StepWork> steps, TimeWindow window,
                                       std::size_t count);

/// 95 % interval of `rate_per_second`: block bootstrap of the total over 10 to 64 equal sub-windows
/// (a quarter of the steps), widened about the rate for the few blocks there are (README). Nothing
/// when fewer than 10 steps end in the window.
std::optional<Interval> rate_interval(std::span<const StepWork> steps, TimeWindow window,
                                      std::uint64_t seed = 1);

struct BlockedInterval {
  std::uint32_t blocks = 5;  ///< of the window, drawn whole: at least 3; about so many
  double coverage = 0.95;    ///< in (0, 1)
};

/// As `rate_interval`, in few long blocks whatever the number of sub-windows, and of any coverage:
/// what is alike for a fifth of the window is seen, at the price of a wider interval.
std::optional<Interval> rate_interval_in_blocks(std::span<const StepWork> steps, TimeWindow window,
                                                const BlockedInterval& settings);

}  // namespace heteroperf
