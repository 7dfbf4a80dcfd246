#pragma once

#include "suite/planning/chosen_plan.hpp"
#include "suite/ranks/rank_context.hpp"

namespace heteroperf {

/// The body of one rank for a workload with one fixed model: all ranks train it by the plan,
/// warm-up then measured phase, then evaluation. Throws Error{run_failed} when the loss is not
/// finite.
ProgramEnd run_training(RankContext& context, const Workload& workload, const ChosenPlan& plan);

/// The engine's view of a workload on this configuration, without a plan.
TrainingSpec training_spec(const RankContext& context, const Workload& workload);

}  // namespace heteroperf
