#include "suite/planning/searched_plan.hpp"

#include <algorithm>
#include <utility>

#include "runners/plan/search/plan_search.hpp"

namespace heteroperf {

SearchedPlan search_plan(const Workload& workload, const Cluster& used, std::uint64_t samples,
                         double time_limit_s) {
  PlanningRequest request;
  request.precision = workload.precision;
  request.optimizer = workload.recipe.kind;
  request.batch = static_cast<std::int64_t>(samples);
  PlanSearchOptions options;
  options.time_limit_s = time_limit_s;
  PlanSearchResult found = search_plans(GraphProblem(workload.graph, used, request), options);
  SearchedPlan result{{}, found.candidates, found.seconds};
  const auto best = std::ranges::find_if(found.plans, [&](const ReadyPlan& ready) {
    return static_cast<std::size_t>(ready.plan.ranks()) == used.ranks.size();
  });
  if (best != found.plans.end()) result.best = std::move(*best);
  return result;
}

}  // namespace heteroperf
