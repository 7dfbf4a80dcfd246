#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runners/plan/ready/ready_plan.hpp"
#include "runners/plan/search/draft_search.hpp"
#include "runners/plan/search/problem/graph_problem.hpp"

namespace heteroperf {

/// A way to lay a model's components on the machine, with the step of its best plan.
struct PlanPlacement {
  std::string name;
  std::optional<double> step_time_s;
  std::optional<double> idle_fraction;  ///< the share of the step in which its ranks do not compute
  std::string why_not;                  ///< where there is no plan
};

/// The search's result for a model on a machine.
struct PlanSearchResult {
  std::vector<ReadyPlan> plans;  ///< distinct, predicted, the fastest first
  /// The placements of a model of several components, the fastest first.
  std::vector<PlanPlacement> placements;
  std::uint64_t candidates = 0, simulated = 0;
  double seconds = 0;
  bool complete = true, exhaustive = false;
};

/// Runs search_drafts() and makes its best drafts ready, so that the exact simulator has the last
/// word. A draft that needs more memory there than the search estimated is left out; where that
/// leaves nothing, the search goes on with less memory.
///
/// The components of a model of several ones are also placed beside each other (branch_plans()),
/// unless the options name the schedules; the chain of all of them is one candidate.
PlanSearchResult search_plans(const GraphProblem& problem, const PlanSearchOptions& options);

}  // namespace heteroperf
