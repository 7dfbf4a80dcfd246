#pragma once

#include <string>
#include <vector>

#include "runners/plan/search/plan_search.hpp"

namespace heteroperf {

/// A search that its time limit ended counts, or it does not. The ranks of a run search each for
/// itself and must agree, so for them it does not.
enum class CutSearch { counts, is_dropped };

/// The best plan of one device class alone, which the heterogeneous speed ratio compares a mix
/// with: it uses all ranks of `part` and takes `request.batch` samples a step. It is the fastest
/// such plan of the search; where the search has none, the fastest even one over every pp × tp ×
/// cp × dp, every micro-batch, and the schedules 1f1b, zb-h1 and `schedule`, which is the mix's.
/// Throws UserError where none is possible.
ReadyPlan best_plan_alone(const ModelGraph& graph, const Cluster& part,
                          const PlanningRequest& request, const PlanSearchOptions& options,
                          const std::string& schedule, CutSearch cut_search);

/// The fastest plan whose ranks share sequences, of the whole machine, where a search of drafts
/// knows replicas alone: an even one, or one whose stages are as large as their ranks are fast.
/// None for more samples than ranks, which replicas can take as fast, or where the model's
/// operations need whole sequences.
std::optional<ReadyPlan> best_context_plan(const ModelGraph& graph, const Cluster& cluster,
                                           const PlanningRequest& request);

/// The best *centric* plan of a model of several components, which planners are compared with: all
/// components have the tp, cp and dp of the last one (of a language model, where there is one),
/// whose even stages are the pipeline; the others lie on its first stage, and ranks that share
/// sequences repeat them. Every pp × tp × cp × dp counts that the machine's ranks, or those of one
/// class alone, divide into, with every micro-batch and the schedules `1f1b` and `zb-h1` (`gpipe`
/// for a loss over the step), with ZeRO-1 and rows of tensor-parallel ranks, and with selective or
/// full recomputation where it does not fit else. Ranks are the whole cluster's.
/// Throws UserError where the model has one component or none fits.
ReadyPlan best_centric_plan(const ModelGraph& graph, const Cluster& cluster,
                            const PlanningRequest& request);

}  // namespace heteroperf
