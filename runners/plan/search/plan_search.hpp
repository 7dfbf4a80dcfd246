#pragma once

#include <vector>

#include "runners/plan/search/certificate.hpp"
#include "runners/plan/search/draft_search.hpp"

namespace heteroperf {

/// A plan and what the exact simulator says of it.
struct FoundPlan {
  Plan plan;
  double step_time_s = 0;
};

/// The search's result for a model on a machine.
struct PlanSearchResult {
  std::vector<FoundPlan> plans;  ///< distinct, the fastest first; every one passes check_plan()
  std::uint64_t candidates = 0, simulated = 0;
  double seconds = 0;
  bool complete = true, exhaustive = false;
};

/// search_drafts(), and its best re-scored by predict(). What needs more memory there than the
/// search's own estimate is left out; where that leaves nothing, the search goes on with less.
PlanSearchResult search_plans(const GraphProblem& problem, const PlanSearchOptions& options);

}  // namespace heteroperf
