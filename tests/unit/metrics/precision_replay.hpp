#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "metrics/base/random.hpp"
#include "metrics/precision_goal.hpp"

namespace heteroperf {

/// A measurement with this goal, as if it had begun with step `first` of a longer one: the last
/// look, which is the first that reached the goal or the one after `duration_s`. Two steps of
/// warm-up, as in a run; the steps must go on for that long.
inline PrecisionLook replay_until(const PrecisionGoal& goal, double duration_s,
                                  std::span<const StepWork> steps, std::size_t first) {
  constexpr std::size_t warmup_steps = 2;
  PrecisionWatch watch(goal);
  for (std::size_t i = first; i < first + warmup_steps; ++i) watch.add(steps[i]);
  watch.begin();
  const std::size_t begin = first + warmup_steps;
  for (std::size_t i = begin;; ++i) {
    watch.add(steps[i]);
    const bool last = TimeWindow{steps[begin].start_ns, steps[i].end_ns}.seconds() >= duration_s;
    const auto look =
        watch.look(last ? PrecisionWatch::Moment::last : PrecisionWatch::Moment::after_step);
    if (look && (last || look->reached)) return *look;
  }
}

/// What replays of one long measurement came to.
struct ReplayTally {
  int replays = 0, reached = 0;
  int held = 0;          ///< the interval told holds the long measurement's rate
  int held_reached = 0;  ///< of those that reached the goal
  double window_s = 0;   ///< sum

  ReplayTally& operator+=(const ReplayTally& other) {
    replays += other.replays;
    reached += other.reached;
    held += other.held;
    held_reached += other.held_reached;
    window_s += other.window_s;
    return *this;
  }
  void add(const PrecisionLook& look, double rate) {
    const bool holds = look.interval && look.interval->low <= rate && rate <= look.interval->high;
    ++replays;
    reached += look.reached;
    held += holds;
    held_reached += holds && look.reached;
    window_s += look.window.seconds();
  }
};

/// From `replays` starts, drawn with equal chance, of which each leaves `duration_s` to go.
inline ReplayTally replay_many(const PrecisionGoal& goal, double duration_s,
                               std::span<const StepWork> steps, int replays, RandomStream& random) {
  const TimeWindow whole{steps.front().start_ns, steps.back().end_ns};
  const double rate = rate_per_second(steps, whole);
  constexpr double spare_s = 1;  // for the warm-up, and the step in which the time is over
  const auto starts = static_cast<std::uint64_t>(
      std::count_if(steps.begin(), steps.end(), [&](const StepWork& step) {
        return TimeWindow{step.start_ns, whole.end_ns}.seconds() > duration_s + spare_s;
      }));
  ReplayTally tally;
  for (int i = 0; i < replays; ++i) {
    tally.add(replay_until(goal, duration_s, steps, random.below(starts)), rate);
  }
  return tally;
}

}  // namespace heteroperf
