#pragma once

#include <vector>

#include "runners/plan/plan_memory.hpp"
#include "runners/plan/stage_times.hpp"
#include "runners/schedule/report.hpp"

namespace heteroperf {

/// What the simulator says of a plan.
struct Prediction {
  double step_time_s = 0;  ///< from step to step: pipeline, reductions, optimizer, agreement
  double throughput = 0;   ///< samples per second
  ScheduleReport pipeline;
  std::vector<double> reduction_exposed_s;  ///< [position]
  std::vector<MemoryLedger> memory;         ///< [rank]
};

/// Deterministic. `times` give every cost.
Prediction predict(const ModelGraph& graph, const StagedGraph& staged, const Plan& plan,
                   const StageTimes& times, Precision precision, OptimizerKind optimizer);

}  // namespace heteroperf
