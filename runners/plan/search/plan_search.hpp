#pragma once

#include <vector>

#include "runners/plan/ready/ready_plan.hpp"
#include "runners/plan/search/draft_search.hpp"
#include "runners/plan/search/problem/graph_problem.hpp"

namespace heteroperf {

/// The search's result for a model on a machine.
struct PlanSearchResult {
  std::vector<ReadyPlan> plans;  ///< distinct, predicted, the fastest first
  std::uint64_t candidates = 0, simulated = 0;
  double seconds = 0;
  bool complete = true, exhaustive = false;
};

/// Runs search_drafts() and makes its best drafts ready, so that the exact simulator has the last
/// word. A draft that needs more memory there than the search estimated is left out; where that
/// leaves nothing, the search goes on with less memory.
PlanSearchResult search_plans(const GraphProblem& problem, const PlanSearchOptions& options);

}  // namespace heteroperf
