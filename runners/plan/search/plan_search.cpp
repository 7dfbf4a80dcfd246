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

class PlanSearch {
 public:
  PlanSearch(const GraphProblem& problem, const PlanSearchOptions& options)
      : problem_(problem), options_(options) {}

  PlanSearchResult run() {
    PlanningProblem drafted = problem_.problem();
    std::vector<Problem> refused;
    for (int i = 0; i < most_searches && result_.plans.empty(); ++i) {
      PlanSearchOptions options = options_;
      options.time_limit_s = options_.time_limit_s - stopwatch_.elapsed_s();
      if (i > 0 && options.time_limit_s <= 0) break;
      const SearchOutcome outcome = search_drafts(drafted, options);
      add(outcome);
      for (const ScoredDraft& draft : outcome.best) judge(draft, refused);
      for (DevicePool& pool : drafted.pools) pool.memory_bytes *= memory_step;
    }
    if (result_.plans.empty()) throw UserError(refused);
    std::ranges::stable_sort(result_.plans, {},
                             [](const ReadyPlan& plan) { return plan.prediction->step_time_s; });
    result_.seconds = stopwatch_.elapsed_s();
    return std::move(result_);
  }

 private:
  /// Sums up what the searches did.
  void add(const SearchOutcome& outcome) {
    result_.candidates += outcome.candidates;
    result_.complete = result_.complete && outcome.complete;
    result_.exhaustive = outcome.exhaustive;
  }

  /// Keeps the draft as a plan, or remembers why it cannot run.
  void judge(const ScoredDraft& draft, std::vector<Problem>& refused) {
    // A result in hand and no time left: the drafts are in order.
    if (!result_.plans.empty() && stopwatch_.elapsed_s() > options_.time_limit_s) return;
    ++result_.simulated;
    try {
      ReadyPlan ready = ready_on(problem_.task(), problem_.plan(draft.draft), problem_.cluster());
      if (!ready.prediction) throw UserError(ready.unpredicted);
      result_.plans.push_back(std::move(ready));
    } catch (const UserError& error) {
      refused = error.problems();
    }
  }

  const GraphProblem& problem_;
  const PlanSearchOptions& options_;
  Stopwatch stopwatch_;
  PlanSearchResult result_;
};

}  // namespace

PlanSearchResult search_plans(const GraphProblem& problem, const PlanSearchOptions& options) {
  return PlanSearch(problem, options).run();
}

}  // namespace heteroperf
