// The plans that a planner's own is compared with: the best of one device class alone, and the best
// centric one.
//
// The heterogeneous speed ratio (HSR) sets a mix of device classes against each of them alone, each
// with its own best plan. What `plan --compare` predicts and what `run` measures are ratios to the
// same baselines because both ask here.
//
// A centric plan is what trainers do with a model of several components when they know one layout
// alone: that of the language model, with the encoders put on its first stage.
#include "runners/plan/search/baseline_plans.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "metrics/base/error.hpp"
#include "runners/plan/even_plan.hpp"
#include "runners/plan/plan_bytes.hpp"
#include "runners/plan/plan_cluster.hpp"
#include "runners/plan/tensor/tensor_parallel.hpp"
#include "workloads/graph/graph_counts.hpp"

namespace heteroperf {
namespace {

/// More micro-batches than these cost simulation and gain nothing.
constexpr std::uint64_t most_micro_batches = 256;

/// Context-parallel ranks can have parts of all that the graph computes.
bool shares_sequences(const ModelGraph& graph, int parts) {
  ProblemList problems;
  std::vector<NodeId> all;
  for (const NodeId id : first_ids<NodeId>(graph.nodes().size())) all.push_back(id);
  check_sequence_parts(graph, all, {0, parts, usual_order(graph, all)}, problems);
  return problems.empty();
}

/// Lists every even plan worth a look, those with few positions and ranks per layer first. Where
/// samples can be dealt to replicas, sharing their sequences is the same work with more messages:
/// it is for fewer samples than ranks.
std::vector<EvenPlanRequest> candidates(const ModelGraph& graph, int ranks, std::uint64_t samples,
                                        const std::string& schedule) {
  std::vector<std::string> schedules = schedules_for(graph, {"1f1b", "zb-h1"});
  if (!schedule.empty() && std::ranges::find(schedules, schedule) == schedules.end()) {
    schedules.push_back(schedule);
  }
  std::map<int, bool> shared;
  const auto can_share = [&](int context) {
    const auto [known, fresh] = shared.try_emplace(context, false);
    if (fresh) known->second = shares_sequences(graph, context);
    return known->second;
  };
  std::vector<EvenPlanRequest> list;
  for (const int pipeline : divisors(ranks)) {
    for (const int tensor : divisors(ranks / pipeline)) {
      for (const int context : divisors(ranks / (pipeline * tensor))) {
        if (context > 1 && !can_share(context)) continue;
        const int data = ranks / (pipeline * tensor * context);
        for (std::uint64_t m = 1; m <= std::min(samples, most_micro_batches); ++m) {
          const std::uint64_t parts = m * static_cast<std::uint64_t>(data);
          const auto each = static_cast<std::int64_t>(samples / parts);
          if (samples % parts != 0 || (context > 1 && each >= context)) continue;
          for (const std::string& name : schedules) {
            if (pipeline == 1 && name != schedules.front()) continue;  // all alike
            list.push_back({.pipeline = pipeline,
                            .tensor = tensor,
                            .context = context,
                            .data = data,
                            .micro_batch = each,
                            .micro_batches = static_cast<int>(m),
                            .schedule = name});
          }
        }
      }
    }
  }
  return list;
}

/// The rates of the slowest rank of each stage; empty where all are alike.
std::vector<double> speeds_of_stages(const EvenPlanRequest& even, const Cluster& cluster,
                                     Precision precision) {
  const int width = even.tensor * even.context * even.data;
  std::vector<double> speeds(static_cast<std::size_t>(even.pipeline), infinite);
  for (int rank = 0; rank < even.pipeline * width; ++rank) {
    const auto& rates = class_of(cluster, RankId(rank)).rates;
    const auto stated = rates.find(to_string(precision));
    if (stated == rates.end()) return {};
    double& slowest = speeds[static_cast<std::size_t>(rank / width)];
    slowest = std::min(slowest, stated->second.value());
  }
  const bool alike = std::ranges::all_of(speeds, [&](double s) { return s == speeds.front(); });
  return alike ? std::vector<double>() : speeds;
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

/// The fastest plan that `ready` gives for one of the requests. Of their refusals the one that
/// lacks the least memory stays, or the first where memory is no reason.
struct FastestEven {
  std::optional<ReadyPlan> plan;
  std::optional<UserError> refusal;
  std::optional<MemoryRefusal> nearest;

  void refuse(const MemoryRefusal& other) {
    const auto order = [](const MemoryRefusal& each) {
      return std::pair(each.at_least, each.lacking);
    };
    if (!nearest || order(other) < order(*nearest)) nearest = other;
  }
  /// Throws the refusal, if there is any.
  void throw_refusal() const {
    if (nearest) throw MemoryRefusal(*nearest);
    if (refusal) throw UserError(*refusal);
  }
};

template <class Ready>
FastestEven fastest_even(const std::vector<EvenPlanRequest>& requests, Ready ready) {
  FastestEven best;
  for (const EvenPlanRequest& even : requests) {
    try {
      ReadyPlan plan = ready(even);
      const bool faster = best.plan && plan.prediction && best.plan->prediction &&
                          plan.prediction->throughput > best.plan->prediction->throughput;
      if (!best.plan || faster) best.plan.emplace(std::move(plan));
    } catch (const MemoryRefusal& error) {
      best.refuse(error);
    } catch (const UserError& error) {
      if (!best.refusal) best.refusal = error;
    }
  }
  return best;
}

/// The even plan with the stages of the last component, and all other nodes on the first one.
/// Context-parallel ranks repeat those of pictures.
Plan centric_plan(const ModelGraph& graph, const std::string& last, const EvenPlanRequest& even) {
  Plan plan = even_plan(graph, even);
  ProblemList problems;
  const auto stages = even_stages(graph, last, plan.stages.size(), problems);
  problems.throw_if_any();
  for (PlanStage& stage : plan.stages) stage.nodes.clear();
  for (const Node& node : graph.nodes()) {
    if (node.branch != last) plan.stages.front().nodes.push_back(node.name);
  }
  for (std::size_t s = 0; s < stages.size(); ++s) {
    for (const NodeId node : stages[s]) {
      plan.stages[StageId(s)].nodes.push_back(graph.node(node).name);
    }
  }
  return plan;
}

/// The bytes of weights and states that a rank of a centric plan's first stage holds at least:
/// those of all components but the last.
double least_states(const TrainingTask& task, const std::string& last,
                    const EvenPlanRequest& even) {
  double elements = 0;
  for (const Node& node : task.graph.nodes()) {
    if (node.branch != last) elements += trained_elements(node);
  }
  const ParameterBytes bytes = bytes_per_parameter(task.precision, task.optimizer);
  return elements / even.tensor *
         (static_cast<double>(bytes.kept) +
          static_cast<double>(bytes.spread) / (even.data * even.context));
}

/// The centric plan with all that saves memory for nothing, and as little recomputation as it fits
/// with.
ReadyPlan ready_centric(const TrainingTask& task, const std::string& last, EvenPlanRequest even,
                        const Cluster& part) {
  const auto least = Bytes(static_cast<std::uint64_t>(least_states(task, last, even)));
  // A class without a limit is told by 0.
  const auto [smallest, largest] = std::ranges::minmax(part.classes, {}, &DeviceClass::memory);
  const Bytes most = largest.memory;
  if (smallest.memory > Bytes(0) && least > most) {
    MemoryRefusal refusal(
        {{fmt::format("the first stage holds {} of weights and states", rounded_byte_size(least)),
          fmt::format("a device has {}", rounded_byte_size(most)), ""}},
        least - most);
    refusal.at_least = true;
    throw refusal;
  }
  even.zero_stage = even.data * even.context > 1 ? 1 : 0;
  even.sequence_parallel = even.tensor > 1;
  return ready_with_recomputation(task, centric_plan(task.graph, last, even), part);
}

}  // namespace

ReadyPlan best_plan_alone(const ModelGraph& graph, const Cluster& part,
                          const PlanningRequest& request, const PlanSearchOptions& options,
                          const std::string& schedule, CutSearch cut_search) {
  if (auto ready = searched_plan(graph, part, request, options, cut_search)) {
    return std::move(*ready);
  }
  const auto samples = static_cast<std::uint64_t>(request.batch);
  const auto requests = candidates(graph, static_cast<int>(part.ranks.size()), samples, schedule);
  const TrainingTask task{graph, request.precision, request.optimizer};
  FastestEven best = fastest_even(requests, [&](const EvenPlanRequest& even) {
    return ReadyPlan(task, even_plan(graph, even), part);
  });
  if (best.plan) return std::move(*best.plan);
  best.throw_refusal();
  throw UserError(
      fmt::format("{} samples a step cannot be spread over {} ranks", samples, part.ranks.size()));
}

std::optional<ReadyPlan> best_context_plan(const ModelGraph& graph, const Cluster& cluster,
                                           const PlanningRequest& request) {
  const auto samples = static_cast<std::uint64_t>(request.batch);
  if (samples > cluster.ranks.size()) return std::nullopt;
  auto requests = candidates(graph, static_cast<int>(cluster.ranks.size()), samples, "");
  std::erase_if(requests, [](const EvenPlanRequest& even) { return even.context == 1; });
  // Where there are very many, some of every kind are looked at.
  constexpr std::size_t most_requests = 64;
  const std::size_t step = requests.size() / most_requests + 1;
  std::size_t number = 0;
  std::erase_if(requests, [&](const EvenPlanRequest&) { return number++ % step != 0; });
  const TrainingTask task{graph, request.precision, request.optimizer};
  for (std::size_t i = 0, all = requests.size(); i < all; ++i) {
    EvenPlanRequest mixed = requests[i];
    mixed.speeds = speeds_of_stages(mixed, cluster, request.precision);
    if (!mixed.speeds.empty()) requests.push_back(std::move(mixed));
  }
  FastestEven best = fastest_even(requests, [&](const EvenPlanRequest& even) {
    return ReadyPlan(task, even_plan(graph, even), cluster);
  });
  if (!best.plan || !best.plan->prediction) return std::nullopt;
  return std::move(best.plan);
}

ReadyPlan best_centric_plan(const ModelGraph& graph, const Cluster& cluster,
                            const PlanningRequest& request) {
  const std::vector<std::string> components = components_of(graph);
  if (components.size() < 2) {
    throw UserError(fmt::format("no centric plan of '{}'", graph.name), "it has one component",
                    "Compare a model of several components.");
  }
  const TrainingTask task{graph, request.precision, request.optimizer};
  const auto samples = static_cast<std::uint64_t>(request.batch);
  std::vector<std::vector<RankId>> parts(1);
  for (const RankId rank : first_ids<RankId>(cluster.ranks.size())) parts[0].push_back(rank);
  const std::vector<ClassRanks> classes = ranks_by_class(cluster);
  for (const ClassRanks& members : classes) {
    if (classes.size() > 1) parts.push_back(members.ranks);
  }
  FastestEven best;
  for (const std::vector<RankId>& ranks : parts) {
    const auto requests = candidates(graph, static_cast<int>(ranks.size()), samples, "");
    const Cluster part = part_of_cluster(cluster, ranks);
    FastestEven found = fastest_even(requests, [&](const EvenPlanRequest& even) {
      return ready_centric(task, components.back(), even, part);
    });
    if (found.refusal && !best.refusal) best.refusal = found.refusal;
    if (found.nearest) best.refuse(*found.nearest);
    if (!found.plan || !found.plan->prediction) continue;
    const bool faster =
        !best.plan || found.plan->prediction->throughput > best.plan->prediction->throughput;
    if (!faster) continue;
    found.plan->plan = on_whole_cluster(std::move(found.plan->plan), ranks);
    best.plan.emplace(std::move(*found.plan));
  }
  if (best.plan) return std::move(*best.plan);
  best.throw_refusal();
  throw UserError(fmt::format("no centric plan of '{}'", graph.name),
                  fmt::format("{} samples a step cannot be spread", samples), "");
}

}  // namespace heteroperf
