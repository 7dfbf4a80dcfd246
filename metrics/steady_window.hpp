#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace heteroperf {

struct WarmupRule {
  std::size_t fewest_steps = 2;  ///< always cut, as far as that is at most half of the steps
  double fewest_fraction = 0;    ///< share of the steps that is always cut as well; 0 to 0.5
};

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
SteadyWindow find_steady_window(std::span<const std::int64_t> step_durations_ns,
                                const WarmupRule& rule = {});

}  // namespace heteroperf
