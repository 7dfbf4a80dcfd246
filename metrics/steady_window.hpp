#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace heteroperf {

struct WarmupRule {
  std::size_t fewest_steps = 2;  ///< always cut, as far as that is at most half of the steps
  double fewest_fraction = 0;    ///< of the steps, always cut as well; 0 to 0.5
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

/// Steps that a run of one model warms up for, in which nothing is measured: so many as are asked
/// for, and of a run to a last step at most half of those that are left after `steps_before`.
/// `last_step`: 0 for a run by time.
std::uint64_t warmup_steps_of_run(std::uint64_t asked, std::uint64_t last_step,
                                  std::uint64_t steps_before);

/// How many of the first steps are warm-up (the rule in metrics/README.md). A pure function of the
/// durations in integer arithmetic: the same on every machine. Durations in order of the steps.
SteadyWindow find_steady_window(std::span<const std::int64_t> step_durations_ns,
                                const WarmupRule& rule = {});

}  // namespace heteroperf
