#pragma once

#include <functional>
#include <span>
#include <vector>

#include "metrics/base/clock.hpp"
#include "metrics/base/quantity.hpp"
#include "runners/cluster/link_curve.hpp"
#include "runners/comm/selection/interleaved_timing.hpp"

namespace heteroperf {

/// The same tasks at one size, timed several times. The median counts; of few rounds the lower
/// quartile, as disturbances make a time longer.
struct SizeTimes {
  Bytes size;
  std::vector<TimedTask> tasks;
  double round_s = 0;  ///< of all tasks together
  std::vector<Timings> rounds;

  /// Of the slowest rank, in seconds.
  double time_of(std::size_t task) const;
  /// Of the slowest among `ranks`.
  double time_of(std::size_t task, std::span<const RankId> ranks) const;
};

/// Times tasks over growing sizes within a budget. Sizes grow by factors of 4 as long as the budget
/// allows, then all of them are timed in turns, so that a disturbance of the machine spoils one
/// round of each. Every decision rests on times that all ranks share, so all decide alike.
class SizeSweep {
 public:
  using TasksOf = std::function<std::vector<TimedTask>(Bytes)>;

  /// `world` outlives it.
  SizeSweep(Communicator& world, Seconds budget) : world_(world), budget_(budget) {}

  /// Sizes up to `span` are measured whatever it takes, those up to `largest` if time allows.
  /// Collective.
  std::vector<SizeTimes> run(Bytes first, Bytes span, Bytes largest, const TasksOf& tasks_of);

 private:
  double left_s();
  void warm_up(SizeTimes& size);
  void time_in_turns(std::vector<SizeTimes>& sizes);

  Communicator& world_;
  Seconds budget_;
  Stopwatch stopwatch_;
};

/// Times by size that never fall: disturbances only make a time longer, so one that exceeds that
/// of a larger message is cut to it.
std::vector<LinkCurve::Point> rising_times(const std::vector<SizeTimes>& measured,
                                           const std::function<double(const SizeTimes&)>& time_of);

/// The curve through rising_times(), at its end at least as steep as from any smaller size: a
/// disturbed time before the last must not flatten what lies beyond. Empty without sizes.
LinkCurve measured_curve(const std::vector<SizeTimes>& measured,
                         const std::function<double(const SizeTimes&)>& time_of);

}  // namespace heteroperf
