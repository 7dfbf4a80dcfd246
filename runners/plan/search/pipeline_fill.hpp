#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "runners/plan/search/stage_filler.hpp"

namespace heteroperf {

/// Longer than any step: memory alone decides.
inline constexpr double any_period_s = 1e30;

/// The devices of every stage, the first stage first.
using PipelineStructure = std::vector<DeviceCounts>;

/// Fills pipelines by dynamic programming, from the last stage to the first, of at most 31 pools.
///
/// The pools that run one stretch of the pipeline are a group: its devices are spread evenly over
/// its stages, which replicate over all of its pools. A state is the set of pools used and the
/// number of stages made; of two ways to it the one that has covered more layers dominates.
///
/// Calls `visit` with the structure of every pipeline of undominated states that covers the model
/// with each stage within `period_s`. False where there is none. Stops early where `stop` says so,
/// and after a bounded number of stages.
bool find_structures(const StageFiller& filler, double period_s, const FillRules& rules,
                     const std::function<bool()>& stop,
                     const std::function<void(PipelineStructure&&)>& visit);
/// A structure filled from the last stage to the first; stages that get no layers are left out.
/// Nothing where it does not cover the model.
std::optional<PipelineDraft> fill_structure(const StageFiller& filler,
                                            const PipelineStructure& structure, double period_s,
                                            const FillRules& rules);
/// With the shortest period, to a part in a thousand, of those up to `period_s`.
std::optional<PipelineDraft> tighten_structure(const StageFiller& filler,
                                               const PipelineStructure& structure, double period_s,
                                               const FillRules& rules);

/// Why no plan of a problem fits the memory of its devices: how much more each would need, and how
/// many more of them. Where it is not the memory: which tables are empty.
std::vector<Problem> fit_problems(const PlanningProblem& problem);

}  // namespace heteroperf
