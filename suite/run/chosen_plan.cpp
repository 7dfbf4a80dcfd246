#include "suite/run/chosen_plan.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "metrics/base/error.hpp"
#include "results/journal_checks/plan_outline.hpp"
#include "runners/plan/plan_check.hpp"
#include "runners/plan/plan_cluster.hpp"
#include "runners/schedule/generator.hpp"
#include "runners/schedule/placement.hpp"

namespace heteroperf {
namespace {

const PlanStage& stage_of(const Plan& plan, const RankRole::Part& part) {
  return plan.stages[static_cast<std::size_t>(part.stage)];
}
int tensor_degree(const Plan& plan, const RankRole::Part& part) {
  const auto replica = static_cast<std::size_t>(part.replica);
  return static_cast<int>(stage_of(plan, part).replicas[replica].ranks.size());
}

/// Chunks that the schedule has when it is not told, asked with micro-batches that all allow; 1
/// where it refuses, so that making the plan says why.
int own_chunks(const EvenPlanRequest& request) {
  try {
    ScheduleRequest bare;
    bare.ranks = request.pipeline;
    bare.micro_batches = 4 * request.pipeline;
    bare.costs = uniform_costs(request.pipeline, 1, 1, 1, 0);
    bare.most_evaluations = 1;
    return find_generator(request.schedule).make(bare).chunks;
  } catch (const UserError&) {
    return 1;
  }
}

/// Without --micro-batches a step has as many samples as the ranks would train data-parallel.
int micro_batches_of(const RunConfig& config, const Workload& workload) {
  const std::int64_t own = workload.micro_batches * config.plan.pipeline * config.plan.tensor;
  return static_cast<int>(config.batch.micro_batches > 0 ? config.batch.micro_batches : own);
}

Plan even_plan_of(const RunConfig& config, const Workload& workload, int ranks) {
  ProblemList problems;
  check_degrees(config.plan, ranks, problems);
  problems.throw_if_any();
  EvenPlanRequest request;
  request.pipeline = config.plan.pipeline;
  request.tensor = config.plan.tensor;
  request.data = ranks / (request.pipeline * request.tensor);
  request.micro_batch = workload.micro_batch;
  request.micro_batches = micro_batches_of(config, workload);
  request.schedule = config.plan.schedule;
  request.recomputation = parse_recomputation(config.plan.recompute);
  request.zero_stage = config.plan.zero_stage;
  request.sequence_parallel = config.plan.sequence_parallel;
  request.chunks = config.plan.chunks > 0 ? config.plan.chunks : own_chunks(request);
  return even_plan(workload.graph, request);
}

void name_classes(Plan& plan, const Cluster& cluster) {
  for (PlanStage& stage : plan.stages) {
    for (StageReplica& replica : stage.replicas) {
      const auto rank = static_cast<std::size_t>(replica.ranks.front().value());
      if (!replica.device_class.empty() || rank >= cluster.ranks.size()) continue;
      const std::string& name = cluster.ranks[rank].device_class;
      const bool alike = std::all_of(replica.ranks.begin(), replica.ranks.end(), [&](RankId r) {
        const auto other = static_cast<std::size_t>(r.value());
        return other < cluster.ranks.size() && cluster.ranks[other].device_class == name;
      });
      if (alike) replica.device_class = name;
    }
  }
}

/// Real classes may lack rates: then nothing is predicted.
std::optional<StageTimes> times_of(const StagedGraph& staged, const Workload& workload,
                                   ChosenPlan& chosen) {
  if (!chosen.cluster) return std::nullopt;
  const auto times_on = [&](const Cluster& cluster) {
    return stage_times(workload.graph, staged, chosen.plan, cluster, workload.precision,
                       workload.recipe.kind);
  };
  try {
    if (chosen.emulated) chosen.paced = times_on(*chosen.cluster);
    return times_on(known_better(*chosen.cluster, chosen.plan));
  } catch (const UserError& error) {
    if (chosen.emulated) throw;
    chosen.unpredicted = error.what();
    return std::nullopt;
  }
}

/// Modelled seconds of computing of one step.
double busy_s(const ChosenPlan& chosen, const RankRole& role) {
  double sum = 0;
  for (const RankRole::Part& part : role.parts) {
    const auto stage = static_cast<std::size_t>(part.stage);
    const StageTimes::Compute& cost =
        chosen.times->compute[stage][static_cast<std::size_t>(part.replica)];
    for (const Instruction& i : chosen.schedule.programs[static_cast<std::size_t>(role.position)]) {
      if (i.segment != part.segment) continue;
      if (i.op == Op::forward) sum += cost.forward_s;
      if (i.op == Op::recompute) sum += cost.recompute_s;
      if (i.op == Op::input_gradient || i.op == Op::backward) sum += cost.input_gradient_s;
      if (i.op == Op::weight_gradient || i.op == Op::backward) sum += cost.weight_gradient_s;
    }
    sum += chosen.times->optimizer_s[stage];
  }
  return sum;
}

RankPlanEvent rank_event(const ChosenPlan& chosen, int rank) {
  const auto r = static_cast<std::size_t>(rank);
  const RankRole& role = chosen.roles[r];
  RankPlanEvent event;
  event.rank = rank;
  event.position = role.position;
  for (const RankRole::Part& part : role.parts) event.stages.push_back(part.stage);
  event.tensor_index = role.parts.front().tensor_index;
  event.tensor_degree = tensor_degree(chosen.plan, role.parts.front());
  event.device_class = chosen.device_class(rank);
  const MemoryLedger& ledger = chosen.memory[r];
  event.weights_bytes = ledger.weights.value();
  event.gradients_bytes = ledger.gradients.value();
  event.optimizer_bytes = ledger.optimizer.value();
  event.activations_bytes = ledger.activations.value();
  event.buffers_bytes = ledger.buffers.value();
  if (chosen.cluster) event.limit_bytes = class_of(*chosen.cluster, RankId(rank)).memory.value();
  if (chosen.times) event.busy_s = busy_s(chosen, role);
  return event;
}

}  // namespace

PlanWorkload plan_workload(const Workload& workload) {
  const SampleSpec& spec = workload.data->spec();
  const bool tokens = spec.kind == InputKind::tokens;
  PlanWorkload own;
  own.name = workload.name;
  (tokens ? own.size : own.model) = workload.size;
  own.precision = to_string(workload.precision);
  own.optimizer = to_string(workload.recipe.kind);
  if (tokens) own.sequence_length = spec.length;
  return own;
}

std::string ChosenPlan::device_class(int rank) const {
  const auto r = static_cast<std::size_t>(rank);
  if (cluster) return cluster->ranks[r].device_class;
  return r < devices.size() ? devices[r] : "cpu";
}

ChosenPlan complete_plan(Plan plan, const Workload& workload, std::optional<Cluster> cluster) {
  ChosenPlan chosen;
  chosen.emulated = cluster && is_emulated(*cluster);
  if (cluster) name_classes(plan, *cluster);
  chosen.plan = std::move(plan);
  chosen.cluster = std::move(cluster);
  const ModelGraph& graph = workload.graph;
  const OptimizerKind optimizer = workload.recipe.kind;
  if (chosen.cluster) {
    check_plan(chosen.plan, graph, *chosen.cluster, workload.precision, optimizer);
  } else {
    check_plan(chosen.plan, graph);
  }
  const StagedGraph staged = cut_graph(graph, chosen.plan);
  chosen.times = times_of(staged, workload, chosen);
  chosen.schedule =
      plan_schedule(graph, staged, chosen.plan, chosen.emulated ? &*chosen.times : nullptr);
  chosen.roles = rank_roles(chosen.plan, chosen.schedule);
  chosen.memory = plan_memory(graph, staged, chosen.plan, chosen.schedule,
                              simulate(chosen.schedule), workload.precision, optimizer);
  if (chosen.times) {
    chosen.prediction =
        predict(graph, staged, chosen.plan, *chosen.times, workload.precision, optimizer);
  }
  return chosen;
}

ChosenPlan choose_plan(const RunConfig& config, const PlanSources& sources,
                       const Workload& workload, const Placement& placement) {
  Plan plan = sources.plan ? *sources.plan : even_plan_of(config, workload, placement.ranks);
  plan.workload = plan_workload(workload);
  if (sources.cluster) plan.cluster = config.cluster.file;
  ChosenPlan chosen = complete_plan(std::move(plan), workload, sources.cluster);
  for (const RankBinding& binding : placement.bindings) chosen.devices.push_back(binding.device);
  return chosen;
}

std::string summary_text(const Plan& plan) {
  PlanShape shape;
  shape.positions = plan.stages.size() / static_cast<std::size_t>(plan.chunks);
  shape.schedule = plan.schedule;
  shape.chunks = plan.chunks;
  shape.micro_batches = plan.micro_batches;
  for (const PlanStage& stage : plan.stages) {
    std::size_t copies = 0;
    for (const StageReplica& replica : stage.replicas) {
      copies += replica.direction == 0 ? 1 : 0;
      shape.tensor.insert(replica.ranks.size());
      shape.batches.insert(replica.micro_batch);
    }
    shape.data.insert(copies);
  }
  return shape.line();
}

std::string held_share(const Plan& plan, const RankRole& role) {
  std::vector<HeldStage> held;
  for (const RankRole::Part& part : role.parts) {
    held.push_back({part.stage, part.tensor_index, tensor_degree(plan, part)});
  }
  return share_text(held, plan.stages.size());
}

std::vector<Event> plan_events(const ChosenPlan& chosen) {
  std::vector<Event> events;
  double busy = 0;
  for (int rank = 0; rank < static_cast<int>(chosen.roles.size()); ++rank) {
    const RankPlanEvent event = rank_event(chosen, rank);
    busy += event.busy_s.value_or(0);
    events.emplace_back(event);
  }
  if (!chosen.unpredicted.empty()) {
    events.emplace_back(WarningEvent{"no prediction: " + chosen.unpredicted, ""});
  }
  if (!chosen.prediction) return events;
  const Prediction& prediction = *chosen.prediction;
  const double all_s = prediction.step_time_s * static_cast<double>(chosen.roles.size());
  events.emplace_back(PredictionEvent{prediction.step_time_s, prediction.throughput,
                                      all_s > 0 ? 1 - busy / all_s : 0,
                                      prediction.pipeline.bubble_rate_makespan});
  return events;
}

}  // namespace heteroperf
