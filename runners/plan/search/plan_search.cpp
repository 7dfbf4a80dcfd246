// The best drafts become plans that are checked and predicted.
//
// The search for drafts knows memory as sums over layers, on the safe side nearly always but not by
// proof. So its best drafts become plans one by one, and the exact ledger and the simulator judge
// them. Where none is left, the search is repeated with a little less memory per device until
// something fits or the tries are used up.
#include "runners/plan/search/plan_search.hpp"

#include <algorithm>
#include <numeric>

#include "metrics/base/clock.hpp"
#include "metrics/base/error.hpp"
#include "runners/plan/search/baseline_plans.hpp"
#include "runners/plan/search/branch_plans.hpp"

namespace heteroperf {
namespace {

/// Between two searches, where the exact ledger did not fit.
constexpr double memory_step = 0.93;
constexpr int most_searches = 5;

/// No schedule was asked for, so that any may be taken.
bool chooses_schedule(const PlanSearchOptions& options) {
  return options.moves.schedules == MoveRules().schedules;
}

/// Fills the result with the plans of the chain of all layers; gives the drafts that became plans.
std::vector<PipelineDraft> search_chain(const GraphProblem& problem,
                                        const PlanSearchOptions& options,
                                        const Stopwatch& stopwatch, PlanSearchResult& result) {
  std::vector<PipelineDraft> drafts;
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
        drafts.push_back(draft.draft);
      } catch (const UserError& error) {
        refused = error.problems();
      }
    }
    for (DevicePool& pool : drafted.pools) pool.memory_bytes *= memory_step;
  }
  // Few samples of long sequences fit machines that drafts do not.
  if (chooses_schedule(options)) {
    auto shared = best_context_plan(problem.task().graph, problem.cluster(), problem.request());
    if (shared) result.plans.push_back(std::move(*shared));
  }
  if (result.plans.empty()) throw UserError(refused);
  return drafts;
}

void sort_by_step(std::vector<ReadyPlan>& plans) {
  std::ranges::stable_sort(plans, {},
                           [](const ReadyPlan& plan) { return plan.prediction->step_time_s; });
}

void describe(const ReadyPlan& ready, PlanPlacement& placement) {
  const std::vector<double> busy = ready.busy_s();
  const double step_s = ready.prediction->step_time_s;
  const double all_s = step_s * static_cast<double>(busy.size());
  placement.step_time_s = step_s;
  placement.idle_fraction = 1 - std::accumulate(busy.begin(), busy.end(), 0.0) / all_s;
}

/// Adds the plans that place components beside each other, and says how all placements compare.
void add_placements(const GraphProblem& problem, const std::vector<PipelineDraft>& chains,
                    const PlanSearchOptions& options, const Stopwatch& stopwatch,
                    PlanSearchResult& result) {
  if (!chooses_schedule(options)) return;
  bool complete = true;
  std::vector<PlacedPlan> placed = branch_plans(problem, chains, [&] {
    complete = complete && stopwatch.elapsed_s() < options.time_limit_s;
    return !complete;
  });
  if (placed.empty()) return;
  result.complete = result.complete && complete;
  sort_by_step(result.plans);
  PlanPlacement chain{"chain", {}, {}, {}};
  if (!result.plans.empty()) describe(result.plans.front(), chain);
  result.placements.push_back(chain);
  try {
    ReadyPlan centric =
        best_centric_plan(problem.task().graph, problem.cluster(), problem.request());
    placed.push_back({"centric", std::move(centric), ""});
  } catch (const UserError& error) {
    placed.push_back({"centric", std::nullopt, error.problems().front().text()});
  }
  for (PlacedPlan& each : placed) {
    PlanPlacement& placement = result.placements.emplace_back();
    placement.name = each.placement;
    placement.why_not = each.why_not;
    if (!each.ready) continue;
    describe(*each.ready, placement);
    result.plans.push_back(std::move(*each.ready));
  }
  std::ranges::stable_sort(result.placements, {}, [](const PlanPlacement& placement) {
    return placement.step_time_s.value_or(infinite);
  });
}

}  // namespace

PlanSearchResult search_plans(const GraphProblem& problem, const PlanSearchOptions& options) {
  const Stopwatch stopwatch;
  PlanSearchResult result;
  std::vector<PipelineDraft> chains;
  std::optional<UserError> refusal;
  try {
    chains = search_chain(problem, options, stopwatch, result);
  } catch (const UserError& error) {
    refusal = error;
  }
  // A model that does not fit as a chain does perhaps with its components beside each other.
  add_placements(problem, chains, options, stopwatch, result);
  if (result.plans.empty()) throw UserError(*refusal);
  sort_by_step(result.plans);
  result.seconds = stopwatch.elapsed_s();
  return result;
}

}  // namespace heteroperf
