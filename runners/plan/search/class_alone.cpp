// The best plan of one device class alone.
//
// The heterogeneous speed ratio (HSR) sets a mix of device classes against each of them alone, each
// with its own best plan. What `plan --compare` predicts and what `run` measures are ratios to the
// same baselines because both ask here.
#include "runners/plan/search/class_alone.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "metrics/base/error.hpp"
#include "runners/plan/even_plan.hpp"

namespace heteroperf {
namespace {

/// More micro-batches than these cost simulation and gain nothing.
constexpr std::uint64_t most_micro_batches = 256;

/// Lists every even plan worth a look, those with few positions and ranks per layer first.
std::vector<EvenPlanRequest> candidates(const ModelGraph& graph, int ranks, std::uint64_t samples,
                                        const std::string& schedule) {
  std::vector<std::string> schedules = schedules_for(graph, {"1f1b", "zb-h1"});
  if (std::ranges::find(schedules, schedule) == schedules.end()) {
    schedules.push_back(schedule);
  }
  std::vector<EvenPlanRequest> list;
  for (const int pipeline : divisors(ranks)) {
    for (const int tensor : divisors(ranks / pipeline)) {
      const int data = ranks / (pipeline * tensor);
      for (std::uint64_t m = 1; m <= std::min(samples, most_micro_batches); ++m) {
        const std::uint64_t parts = m * static_cast<std::uint64_t>(data);
        if (samples % parts != 0) continue;
        for (const std::string& name : schedules) {
          if (pipeline == 1 && name != schedules.front()) continue;  // all alike
          list.push_back({.pipeline = pipeline,
                          .tensor = tensor,
                          .data = data,
                          .micro_batch = static_cast<std::int64_t>(samples / parts),
                          .micro_batches = static_cast<int>(m),
                          .schedule = name});
        }
      }
    }
  }
  return list;
}

/// The fastest plan of the search that uses all ranks; none where the planner cannot cut the model
/// or knows no rates.
std::optional<ReadyPlan> searched_plan(const ModelGraph& graph, const Cluster& part,
                                       const PlanningRequest& request,
                                       const PlanSearchOptions& options, CutSearch cut_search) {
  try {
    PlanSearchResult result = search_plans(GraphProblem(graph, part, request), options);
    if (!result.complete && cut_search == CutSearch::is_dropped) return std::nullopt;
    for (ReadyPlan& ready : result.plans) {
      if (ready.roles.size() == part.ranks.size()) return std::move(ready);
    }
  } catch (const UserError&) {
    // An even plan may still run.
  }
  return std::nullopt;
}

}  // namespace

ReadyPlan best_plan_alone(const ModelGraph& graph, const Cluster& part,
                          const PlanningRequest& request, const PlanSearchOptions& options,
                          const std::string& schedule, CutSearch cut_search) {
  if (auto ready = searched_plan(graph, part, request, options, cut_search)) {
    return std::move(*ready);
  }
  std::optional<ReadyPlan> best;
  std::optional<UserError> refusal;
  const auto samples = static_cast<std::uint64_t>(request.batch);
  for (const EvenPlanRequest& even :
       candidates(graph, static_cast<int>(part.ranks.size()), samples, schedule)) {
    try {
      ReadyPlan ready({graph, request.precision, request.optimizer}, even_plan(graph, even), part);
      const bool faster = best && ready.prediction && best->prediction &&
                          ready.prediction->throughput > best->prediction->throughput;
      if (!best || faster) best.emplace(std::move(ready));
    } catch (const UserError& error) {
      if (!refusal) refusal = error;
    }
  }
  if (best) return std::move(*best);
  if (refusal) throw *refusal;
  throw UserError(
      fmt::format("{} samples a step cannot be spread over {} ranks", samples, part.ranks.size()));
}

}  // namespace heteroperf
