#pragma once

#include <vector>

#include "runners/plan/plan.hpp"
#include "runners/plan/staged_graph.hpp"
#include "runners/schedule/ir/schedule.hpp"
#include "runners/schedule/simulate/simulator.hpp"
#include "workloads/recipe.hpp"

namespace heteroperf {

/// One rank's memory at its fullest moment of a step.
struct MemoryLedger {
  Bytes weights, gradients, optimizer;
  Bytes activations;  ///< kept for backward, at their peak over the schedule's order
  Bytes buffers;  ///< boundary tensors, messages under way, the largest temporary of an operator
  Bytes total() const { return weights + gradients + optimizer + activations + buffers; }
};

/// [rank]. `schedule` is the plan's lowered one, `timeline` its simulation.
std::vector<MemoryLedger> plan_memory(const ModelGraph& graph, const StagedGraph& staged,
                                      const Plan& plan, const Schedule& schedule,
                                      const Timeline& timeline, Precision precision,
                                      OptimizerKind optimizer);

}  // namespace heteroperf
