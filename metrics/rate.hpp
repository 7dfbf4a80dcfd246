#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "metrics/statistics.hpp"

namespace heteroperf {

/// The work of one step: `amount` operations (or samples, or tokens) between two moments of one
/// clock. Steps of different groups of ranks may overlap.
struct StepWork {
  std::int64_t start_ns = 0, end_ns = 0;
  double amount = 0;
};

/// A window of time, from `start_ns` (excluded) to `end_ns`. It must not be empty.
struct TimeWindow {
  std::int64_t start_ns = 0, end_ns = 0;

  double seconds() const { return static_cast<double>(end_ns - start_ns) * 1e-9; }
  bool contains(std::int64_t t_ns) const { return start_ns < t_ns && t_ns <= end_ns; }
};

/// Returns the amounts of the steps that end in the window / the window's length.
double rate_per_second(std::span<const StepWork> steps, TimeWindow window);

/// Returns the amounts in each of `count` equal parts of the window, of the steps that end in it.
/// A step that lies in several parts is shared among them by time. What it did before the window
/// counts in its part inside, so that the sum is the numerator of `rate_per_second`.
std::vector<double> sub_window_amounts(std::span<const StepWork> steps, TimeWindow window,
                                       std::size_t count);

/// Returns the 95 % interval of `rate_per_second`: a block bootstrap of the total over 10 to 64
/// equal sub-windows (a quarter of the steps), widened about the rate because there are few blocks
/// (README). Returns nothing when fewer than 10 steps end in the window.
std::optional<Interval> rate_interval(std::span<const StepWork> steps, TimeWindow window,
                                      std::uint64_t seed = 1);

struct BlockedInterval {
  std::uint32_t blocks = 5;  ///< the window is drawn in about so many blocks, at least 3
  double coverage = 0.95;    ///< coverage of the interval, in (0, 1)
};

/// Returns an interval as `rate_interval` does, but in few long blocks whatever the number of
/// sub-windows, and of any coverage. It sees disturbances that last for a fifth of the window, at
/// the price of a wider interval.
std::optional<Interval> rate_interval_in_blocks(std::span<const StepWork> steps, TimeWindow window,
                                                const BlockedInterval& settings);

enum class WarmupEnd {
  settled,        ///< no downward trend is left in the window
  still_warming,  ///< half of the steps were cut and the rest still becomes faster
};

struct SteadyWindow {
  std::size_t warmup_steps = 0;  ///< the window starts where the last of them ends
  WarmupEnd end = WarmupEnd::settled;
  friend bool operator==(const SteadyWindow&, const SteadyWindow&) = default;
};

/// Returns the number of steps that a run of one model warms up for, in which nothing is measured:
/// `asked`, and in a run that ends at `last_step` at most half of the steps after `steps_before`.
/// `last_step` is 0 for a run by time.
std::uint64_t warmup_steps_of_run(std::uint64_t asked, std::uint64_t last_step,
                                  std::uint64_t steps_before);

/// Finds how many of the first steps are warm-up (the rule stands in metrics/README.md). It is a
/// pure function of the durations in integer arithmetic, the same on every machine. Durations come
/// in the order of the steps.
SteadyWindow find_steady_window(std::span<const std::int64_t> step_durations_ns);

}  // namespace heteroperf
