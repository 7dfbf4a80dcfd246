#pragma once

#include <string>

#include "runners/plan/plan.hpp"

namespace heteroperf {

/// A plan as Megatron Core's command line says it, one argument a line: parallel degrees, batch
/// sizes, recomputation, and the stages as the string of `--pipeline-model-parallel-layout`
/// ("Et*3|t*4,L": E embedding, t transformer layer, L loss, | between stages). Device classes are
/// not said: ranks are to be started in the plan's order. Throws UserError with everything that it
/// cannot say: replicas or stages of different degrees, counts or batches, other schedules than
/// 1f1b and interleaved-1f1b, stages that recompute differently, compressed wires, blocks cut in
/// two, ranks in another order.
std::string megatron_arguments(const Plan& plan);

}  // namespace heteroperf
