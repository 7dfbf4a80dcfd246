// The certificate of a plan: its prediction, a lower bound, the gap between the two, and what
// limits it.
//
// Everything is worked out from the plan, the model and the machine, never from what the search
// knew, so the certificate of a plan written by hand means the same. The bound is asked for with
// the plan's own samples per step and with tables that reach as far as its micro-batches and
// degrees. It covers as many constraints as the plan obeys: a plan whose ranks hold several stages
// can hide sums behind passes and is held against the weaker bound.
#include "runners/plan/search/bounds/certificate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "workloads/graph/graph_counts.hpp"

namespace heteroperf {
namespace {

/// Joins the steps of the critical path that follow each other on one position.
std::vector<CriticalPart> critical_parts(const ScheduleReport& report) {
  std::vector<CriticalPart> parts;
  for (const PathStep& step : report.critical_path) {
    const PositionId position(step.rank);
    if (parts.empty() || parts.back().position != position) {
      parts.push_back({position, 0, step.span.start, step.span.end});
    }
    ++parts.back().passes;
    parts.back().end_s = step.span.end;
  }
  return parts;
}

/// The position that ends last and what it did there most; else what the path waits for.
std::string limiter(const Prediction& prediction) {
  double busy = 0, exposed = 0;
  PositionId busiest, summing;
  for (const PositionId q : prediction.reduction_exposed_s.ids()) {
    if (prediction.pipeline.ranks[q.index()].busy > busy) {
      busy = prediction.pipeline.ranks[q.index()].busy;
      busiest = q;
    }
    if (prediction.reduction_exposed_s[q] > exposed) {
      exposed = prediction.reduction_exposed_s[q];
      summing = q;
    }
  }
  double messages = 0;
  for (const RankTimes& times : prediction.pipeline.ranks) {
    messages = std::max(messages, times.communication);
  }
  if (exposed > busy) return fmt::format("stage {}: sum over replicas", summing.value());
  if (messages > busy) return "messages between stages";
  return fmt::format("stage {}: compute", busiest.value());
}

/// Tables that reach as far as the plan.
PlanningRequest request_of(const Plan& plan, const TrainingTask& task) {
  PlanningRequest request{task.precision, task.optimizer,
                          static_cast<std::int64_t>(plan.samples_per_step())};
  for (const PlanStage& stage : plan.stages) {
    for (const StageReplica& replica : stage.replicas) {
      request.most_samples = std::max(request.most_samples, replica.micro_batch);
      request.most_degree = std::max(request.most_degree, static_cast<int>(replica.ranks.size()));
    }
  }
  return request;
}

/// Where ranks share a sequence a sample is in several places at once: only the work bounds it.
PlanBound bound_of(const Plan& plan, const PlanningProblem& problem, BoundScope scope) {
  const bool shares = std::ranges::any_of(plan.stages, [](const PlanStage& stage) {
    return std::ranges::any_of(stage.replicas,
                               [](const StageReplica& replica) { return !replica.part.whole(); });
  });
  if (!shares) return plan_bound(problem, scope);
  PlanBound bound = plan_bound(problem, BoundScope::any_plan);
  std::erase_if(bound.constraints,
                [](const PlanBound::Constraint& each) { return each.name != "work"; });
  bound.seconds = bound.constraints.front().seconds;
  bound.binding = bound.constraints.front().name;
  return bound;
}

/// Ranks with parts of several stages can sum the one while they compute the other.
BoundScope scope_of(const Plan& plan) {
  std::set<RankId> seen;
  for (const PlanStage& stage : plan.stages) {
    for (const StageReplica& replica : stage.replicas) {
      for (const RankId rank : replica.ranks) {
        if (!seen.insert(rank).second) return BoundScope::any_plan;
      }
    }
  }
  constexpr const char* in_turn[] = {"1f1b", "zb-h1", "zb-h2", "gpipe"};
  const bool known = std::ranges::find(in_turn, plan.schedule) != std::end(in_turn);
  return known ? BoundScope::one_chunk_in_turn : BoundScope::one_stage_per_position;
}

}  // namespace

PlanCertificate certify(const TrainingTask& task, const ReadyPlan& ready, const Cluster& whole) {
  const Plan& plan = ready.plan;
  PlanCertificate result;
  result.prediction = ready.predicted();
  const double step_s = result.prediction.step_time_s;
  if (step_s > 0) {
    result.operations_per_s =
        strict_train_ops(task.graph, usual_extent(task.graph, plan.samples_per_step()))
            .to_double() /
        step_s;
  }
  const GraphProblem problem(task.graph, whole, request_of(plan, task));
  result.bound = bound_of(plan, problem.problem(), scope_of(plan));
  result.gap = result.bound.seconds > 0 ? step_s / result.bound.seconds - 1 : 0;
  result.limited_by = limiter(result.prediction);
  result.critical_path = critical_parts(result.prediction.pipeline);
  for (std::size_t rank = 0; rank < ready.memory.size(); ++rank) {
    const DeviceClass& device = class_of(*ready.cluster, RankId(rank));
    result.memory.push_back({device.name, ready.memory[rank], device.memory});
  }
  return result;
}

}  // namespace heteroperf
