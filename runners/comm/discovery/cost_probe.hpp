#pragma once

#include <functional>
#include <span>
#include <vector>

#include "metrics/base/clock.hpp"
#include "metrics/base/id.hpp"
#include "metrics/base/quantity.hpp"
#include "runners/cluster/link_curve.hpp"
#include "runners/comm/communicator.hpp"
#include "runners/comm/selection/cost_model.hpp"

namespace heteroperf {

/// Something that all ranks of a group do together. A rank without a part in it does nothing.
struct TimedTask {
  std::function<void()> run;
  int calls = 1;  ///< back to back after a barrier; equal on all ranks
  /// The calls before the clock starts. They bring caches, shapers and buffers into the state that
  /// calls in a row find.
  int untimed = 0;
};

/// The seconds per call of every task and rank in one round; equal on all ranks.
struct RoundTimes {
  std::size_t tasks;
  std::vector<double> seconds;  ///< by rank, task

  /// The time of the slowest among `ranks`; without these, of all.
  double slowest(std::size_t task, std::span<const RankId> ranks = {}) const;
};

/// Times tasks in turns: every round runs every task once, so that a disturbance of the machine
/// meets all of them alike. Collective.
RoundTimes time_round(Communicator& group, std::span<const TimedTask> tasks);

/// The same tasks at one size, timed several times. The median counts; of few rounds the lower
/// quartile, as disturbances make a time longer.
struct SizeTimes {
  Bytes size;
  std::vector<TimedTask> tasks;
  double round_s = 0;  ///< seconds of all tasks together
  std::vector<RoundTimes> rounds;

  /// The time of the slowest among `ranks`, in seconds; without these, of all.
  double time_of(std::size_t task, std::span<const RankId> ranks = {}) const;
};

/// Times tasks over growing sizes within a budget of time. Sizes grow by factors of 4 as long as
/// the budget allows, then all of them are timed in turns, so that a disturbance of the machine
/// spoils one round of each. Every decision rests on times that all ranks share, so all decide
/// alike.
class SizeSweep {
 public:
  using TasksOf = std::function<std::vector<TimedTask>(Bytes)>;

  /// `world` outlives this object.
  SizeSweep(Communicator& world, Seconds budget) : world_(world), budget_(budget) {}

  /// Sizes up to `span` are measured however long that takes, and sizes up to `largest` if time
  /// allows. Collective.
  std::vector<SizeTimes> run(Bytes first, Bytes span, Bytes largest, const TasksOf& tasks_of);

 private:
  double left_s();
  void warm_up(SizeTimes& size);
  void time_in_turns(std::vector<SizeTimes>& sizes);

  Communicator& world_;
  Seconds budget_;
  Stopwatch stopwatch_;
};

/// Returns times by size that never fall: disturbances only make a time longer, so a time that
/// exceeds the one of a larger message is cut to it.
std::vector<LinkCurve::Point> rising_times(const std::vector<SizeTimes>& measured,
                                           const std::function<double(const SizeTimes&)>& time_of);

/// Makes the curve through rising_times(). Its end is at least as steep as from any smaller size: a
/// disturbed time before the last one must not flatten the curve beyond. Empty without sizes.
LinkCurve measured_curve(const std::vector<SizeTimes>& measured,
                         const std::function<double(const SizeTimes&)>& time_of);

/// Measures the curves and corrections of a cost model, with all ranks at work, for vectors of up
/// to `largest` bytes; takes about one and a half seconds. `inside` has the ranks of this rank's
/// cluster in ascending order. Collective; the same result on all ranks.
CostModel measure_cost_model(Communicator& world, Communicator& inside,
                             const RankClusters& clusters, Bytes largest);

}  // namespace heteroperf
