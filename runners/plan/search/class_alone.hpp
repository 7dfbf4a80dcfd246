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
/// dp, every micro-batch, and the schedules 1f1b, zb-h1 and `schedule`, which is the mix's. Throws
/// UserError where none is possible.
ReadyPlan best_plan_alone(const ModelGraph& graph, const Cluster& part,
                          const PlanningRequest& request, const PlanSearchOptions& options,
                          const std::string& schedule, CutSearch cut_search);

}  // namespace heteroperf
