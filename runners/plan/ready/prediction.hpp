#pragma once

#include <vector>

#include "runners/plan/times/stage_times.hpp"
#include "runners/schedule/simulate/report.hpp"
#include "runners/schedule/simulate/simulator.hpp"

namespace heteroperf {

/// The step that the simulator sees of a plan.
struct Prediction {
  double step_time_s = 0;  ///< from step to step: pipeline, reductions, optimizer, agreement
  double throughput = 0;   ///< samples per second
  ScheduleReport pipeline;
  IdVector<PositionId, double> reduction_exposed_s;
};

/// The times of a step: the pipeline of `timeline`, which is `schedule` simulated with `times`,
/// then the sums over replicas that it does not hide, the optimizer, and the agreement of all
/// ranks.
Prediction predict(const StagedGraph& staged, const Plan& plan, const StageTimes& times,
                   const Schedule& schedule, const Timeline& timeline);

}  // namespace heteroperf
