// The best drafts become plans that are checked and predicted.
//
// The search for drafts knows memory as sums over layers, on the safe side nearly always but not by
// proof. So its best drafts become plans one by one, and the exact ledger and the simulator judge
// them. Where none is left, the search is repeated with a little less memory per device until
// something fits or the tries are used up.
#include "runners/plan/search/plan_search.hpp"

#include <algorithm>

#include "metrics/base/clock.hpp"
#include "metrics/base/error.hpp"

namespace heteroperf {
namespace {

/// Between two searches, where the exact ledger did not fit.
constexpr double memory_step = 0.93;
constexpr int most_searches = 5;

}  // namespace

PlanSearchResult search_plans(const GraphProblem& problem, const PlanSearchOptions& options) {
  const Stopwatch stopwatch;
  PlanSearchResult result;
  PlanningProblem drafted = problem.problem();
  std::vector<Problem> refused;
  const auto left_s = [&] { return options.time_limit_s - stopwatch.elapsed_s(); };
  for (int i = 0; i < most_searches && result.plans.empty(); ++i) {
    PlanSearchOptions remaining = options;
    remaining.time_limit_s = left_s();
    remaining.moves.schedules = schedules_for(problem.task().graph, options.moves.schedules);
    if (i > 0 && remaining.time_limit_s <= 0) break;
    const SearchOutcome outcome = search_drafts(drafted, remaining);
    result.candidates += outcome.candidates;
    result.complete = result.complete && outcome.complete;
    result.exhaustive = outcome.exhaustive;
    for (const ScoredDraft& draft : outcome.best) {
      // A result in hand and no time left: the drafts are in order.
      if (!result.plans.empty() && left_s() < 0) break;
      ++result.simulated;
      try {
        ReadyPlan ready = ready_on(problem.task(), problem.plan(draft.draft), problem.cluster());
        if (!ready.prediction) throw UserError(ready.unpredicted);
        result.plans.push_back(std::move(ready));
      } catch (const UserError& error) {
        refused = error.problems();
      }
    }
    for (DevicePool& pool : drafted.pools) pool.memory_bytes *= memory_step;
  }
  if (result.plans.empty()) throw UserError(refused);
  std::ranges::stable_sort(result.plans, {},
                           [](const ReadyPlan& plan) { return plan.prediction->step_time_s; });
  result.seconds = stopwatch.elapsed_s();
  return result;
}

}  // namespace heteroperf
