#pragma once

#include <vector>

#include "results/journal/events.hpp"
#include "runners/plan/ready/ready_plan.hpp"

namespace heteroperf {

/// Foretells what a step by a plan sends from each component of the model to the others, and the
/// least that any way to send it needs; nothing for a model of one component. `ready` is the plan
/// for `graph`.
std::vector<PlannedBorder> planned_borders(const ModelGraph& graph, const ReadyPlan& ready,
                                           Precision precision);

}  // namespace heteroperf
