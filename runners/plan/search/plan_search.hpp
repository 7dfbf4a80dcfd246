#pragma once

#include <functional>
#include <string>
#include <vector>

#include "runners/plan/ready/ready_plan.hpp"
#include "runners/plan/search/branch_plans.hpp"
#include "runners/plan/search/draft_search.hpp"
#include "runners/plan/search/problem/graph_problem.hpp"

namespace heteroperf {

/// The search's result for a model on a machine.
struct PlanSearchResult {
  std::vector<ReadyPlan> plans;  ///< distinct, predicted, the fastest first
  /// The placements of a model of several components, those with plans first, the best of all
  /// first; the best `chain` of all layers and the `centric` plan are among them.
  std::vector<PlacedPlan> placements;
  std::uint64_t candidates = 0, simulated = 0;
  double seconds = 0;
  bool complete = true, exhaustive = false;
};

/// Puts the placements whose plans have the least value first, those without plans last.
void sort_placements(std::vector<PlacedPlan>& placements,
                     const std::function<double(const ReadyPlan&)>& value);

/// Runs search_drafts() and makes its best drafts ready, so that the exact simulator has the last
/// word. A draft that needs more memory there than the search estimated is left out; where that
/// leaves nothing, the search goes on with less memory.
///
/// The components of a model of several ones are also placed beside each other (branch_plans());
/// the chain of all of them is one candidate. Where the options name the schedules, placements keep
/// to them, and the centric plan is none.
PlanSearchResult search_plans(const GraphProblem& problem, const PlanSearchOptions& options);

}  // namespace heteroperf
