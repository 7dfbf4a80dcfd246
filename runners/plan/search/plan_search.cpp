// The best drafts become plans that are checked and predicted.
//
// The search for drafts knows memory as sums over layers, on the safe side nearly always but not by
// proof. So its best drafts become plans one by one, and the exact ledger and the simulator judge
// them. Where none is left, the search is repeated with a little less memory per device until
// something fits or the tries are used up.
#include "runners/plan/search/plan_search.hpp"

#include <algorithm>
#include <optional>

#include "metrics/base/clock.hpp"
#include "metrics/base/error.hpp"
#include "runners/plan/search/baseline_plans.hpp"

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

/// Adds the plans that place components beside each other, and says how all placements compare.
void add_placements(const GraphProblem& problem, const std::vector<PipelineDraft>& chains,
                    const PlanSearchOptions& options, const Stopwatch& stopwatch,
                    const std::optional<UserError>& refusal, PlanSearchResult& result) {
  const ModelGraph& graph = problem.task().graph;
  std::vector<std::string> schedules;
  if (!chooses_schedule(options)) schedules = schedules_for(graph, options.moves.schedules);
  bool complete = true;
  result.placements = branch_plans(problem, chains, schedules, [&] {
    complete = complete && stopwatch.elapsed_s() < options.time_limit_s;
    return !complete;
  });
  if (result.placements.empty()) return;
  result.complete = result.complete && complete;
  if (chooses_schedule(options)) {
    PlacedPlan& centric = result.placements.emplace_back(PlacedPlan{"centric", {}, ""});
    try {
      centric.ready = best_centric_plan(graph, problem.cluster(), problem.request());
    } catch (const UserError& error) {
      centric.why_not = error.problems().front().text();
    }
  }
  sort_by_step(result.plans);
  PlacedPlan chain{"chain", {}, refusal ? refusal->problems().front().text() : ""};
  if (!result.plans.empty()) chain.ready = result.plans.front();
  for (const PlacedPlan& each : result.placements) {
    if (each.ready) result.plans.push_back(*each.ready);
  }
  result.placements.insert(result.placements.begin(), std::move(chain));
  sort_placements(result.placements,
                  [](const ReadyPlan& ready) { return ready.predicted().step_time_s; });
}

}  // namespace

void sort_placements(std::vector<PlacedPlan>& placements,
                     const std::function<double(const ReadyPlan&)>& value) {
  std::ranges::stable_sort(placements, {}, [&](const PlacedPlan& placement) {
    return placement.ready ? value(*placement.ready) : infinite;
  });
}

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
  add_placements(problem, chains, options, stopwatch, refusal, result);
  if (result.plans.empty()) throw UserError(*refusal);
  sort_by_step(result.plans);
  result.seconds = stopwatch.elapsed_s();
  return result;
}

}  // namespace heteroperf
