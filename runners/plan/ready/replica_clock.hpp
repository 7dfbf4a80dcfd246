#pragma once

#include <vector>

#include "runners/plan/ready/plan_schedule.hpp"
#include "runners/plan/times/stage_times.hpp"
#include "runners/schedule/ir/graph_index.hpp"
#include "runners/schedule/simulate/simulator.hpp"

namespace heteroperf {

/// One rank's way through the program of its position, in seconds from the start of the step. Sums
/// of gradients and the optimizer come after it.
struct ReplicaPass {
  std::vector<TimeSpan> spans;  ///< [instruction]
  double compute_s = 0;
  double communication_s = 0;  ///< waited, between its computations, for messages under way
};

/// A position's timeline is that of its slowest replica. Here every rank takes the time of its own:
/// what other ranks' stages make arrives when that timeline has it, what it makes itself when it
/// has made it.
class ReplicaClock {
 public:
  /// `schedule` is the plan's own, made with `times`; `timeline` is simulate(schedule). All must
  /// outlive the clock.
  ReplicaClock(const StageTimes& times, const Schedule& schedule, const Timeline& timeline);

  /// The role is one of the schedule's ranks; its parts lie on one position.
  ReplicaPass run(const RankRole& role) const;

 private:
  struct Arrival {
    double made = 0, time = 0;
  };
  std::int32_t value(const Instruction& instruction) const;
  Arrival latest_input(const Instruction& instruction, const RankRole& role) const;
  double compute_s(const Instruction& instruction, const RankRole& role) const;

  const StageTimes& times_;
  const Schedule& schedule_;
  const Timeline& timeline_;
  TaskTable tasks_;
  std::vector<double> made_;  ///< end of each slot's forward (2·slot) and gradient (2·slot + 1)
};

}  // namespace heteroperf
