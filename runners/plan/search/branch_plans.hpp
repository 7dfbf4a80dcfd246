#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runners/plan/ready/ready_plan.hpp"
#include "runners/plan/search/problem/graph_problem.hpp"

namespace heteroperf {

/// A way to lay the components of a model on a machine, with its best plan.
struct PlacedPlan {
  std::string placement;
  std::optional<ReadyPlan> ready;
  std::string why_not;  ///< where there is no plan
};

/// The best plans, one for each placement of lay_branches(), of a model of several components.
/// Every plan has one of the `schedules`, which places stages as the plan does; without any it has
/// `auto`, which takes all placements. Empty for a model of one component.
///
/// A rank may hold stages of several components, each with its own tensor-parallel degree. Layers
/// are cut by the times of the machine. `chains`, drafts of the problem, show how devices may be
/// divided. `stop` is asked between two sets of drafts; where it never says true, the result is the
/// same for the same problem.
std::vector<PlacedPlan> branch_plans(const GraphProblem& problem,
                                     const std::vector<PipelineDraft>& chains,
                                     const std::vector<std::string>& schedules,
                                     const std::function<bool()>& stop);

}  // namespace heteroperf
