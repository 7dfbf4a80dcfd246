// Decides the plan of a run of one fixed model. A plan file brings its plan, or the planner makes
// one; otherwise the degrees of the configuration make an *even* one: every position of the
// pipeline has the same number of replicas, each with the same tensor degree and micro-batch.
// Either is then made ready, which checks it against the model and the cluster, lowers its schedule
// and computes memory and, where the cluster has rates, a prediction.
//
// On emulated devices the plan needs times too, since ranks sleep until the modelled end of each
// instruction. Those times come from the cluster's description alone, while the prediction may use
// better rates that the plan knows; otherwise a plan could change the machine that it runs on.
#include "suite/planning/chosen_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "metrics/base/error.hpp"
#include "results/journal_checks/plan_outline.hpp"
#include "runners/plan/layout_plan.hpp"
#include "runners/plan/plan_cluster.hpp"
#include "runners/plan/search/plan_search.hpp"
#include "runners/schedule/generators/generator.hpp"
#include "runners/schedule/ir/placement.hpp"

namespace heteroperf {
namespace {

int tensor_degree(const Plan& plan, const RankRole::Part& part) {
  return static_cast<int>(plan.stages[part.stage].replicas[part.replica].ranks.size());
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
  const std::int64_t usual = workload.micro_batches * config.plan.ranks_of_copy();
  return static_cast<int>(config.batch.micro_batches > 0 ? config.batch.micro_batches : usual);
}

Plan even_plan_of(const RunConfig& config, const Workload& workload, int ranks) {
  ProblemList problems;
  check_degrees(config.plan, ranks, problems);
  problems.throw_if_any();
  EvenPlanRequest request;
  request.pipeline = config.plan.pipeline;
  request.tensor = config.plan.tensor;
  request.context = config.plan.context;
  request.data = static_cast<int>(ranks / config.plan.ranks_of_copy());
  request.micro_batch = workload.micro_batch;
  request.micro_batches = micro_batches_of(config, workload);
  request.schedule = config.plan.schedule;
  request.recomputation = config.plan.recompute;
  request.zero_stage = config.plan.zero_stage;
  request.sequence_parallel = config.plan.sequence_parallel;
  request.chunks = config.plan.chunks > 0 ? config.plan.chunks : own_chunks(request);
  return even_plan(workload.graph, request);
}

/// A micro-batch has the usual samples on each replica of the component that has the most. Only
/// `auto` takes stages wherever they are, so it stands for the usual schedule.
Plan layout_plan_of(const RunConfig& config, const Workload& workload) {
  LayoutPlanRequest request;
  request.layouts = parse_layouts(config.plan.layout);
  request.micro_batch = workload.micro_batch * request.layouts.most_replicas();
  request.micro_batches = micro_batches_of(config, workload);
  if (config.batch.micro_batches == 0) {
    request.micro_batches *= std::max(1, request.layouts.ranks() / request.layouts.most_replicas());
  }
  if (config.plan.schedule != PlanConfig().schedule) request.schedule = config.plan.schedule;
  request.recomputation = config.plan.recompute;
  request.zero_stage = config.plan.zero_stage;
  request.sequence_parallel = config.plan.sequence_parallel;
  return layout_plan(workload.graph, request);
}

/// Ends by itself long before its time on clusters of some hundred devices; then every rank that
/// searches finds the same plan.
Plan searched_plan(const RunConfig& config, const PlanSources& sources, const Workload& workload) {
  constexpr double time_limit_s = 10;
  const Cluster& cluster = sources.cluster.value();
  const auto samples =
      static_cast<std::uint64_t>(workload.micro_batch * micro_batches_of(config, workload) *
                                 static_cast<std::int64_t>(cluster.ranks.size()));
  const SearchedPlan found = search_plan(workload, cluster, samples, time_limit_s);
  if (found.best) return found.best->plan;
  throw UserError("--plan auto finds no plan that uses every device",
                  "the fastest plans leave devices idle, and a run has a rank on each",
                  fmt::format("Use `heteroperf plan {} --cluster {} -o plan.json`, then run --plan "
                              "plan.json",
                              workload.name, config.cluster.file));
}

/// Emulated chips among the ranks limit the memory of their classes, which is one for all of a
/// class: the smallest of its chips'.
void hold_to_chips(const Placement& placement, Cluster& cluster) {
  const std::size_t ranks = std::min(cluster.ranks.size(), placement.devices.size());
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const std::optional<EmulatedChip>& chip = placement.devices[rank].chip;
    if (!chip || chip->memory_bytes == 0) continue;
    for (DeviceClass& device : cluster.classes) {
      if (device.name != cluster.ranks[rank].device_class) continue;
      const Bytes limit(chip->memory_bytes);
      device.memory = device.memory == Bytes(0) ? limit : std::min(device.memory, limit);
    }
  }
}

void name_classes(Plan& plan, const Cluster& cluster) {
  for (PlanStage& stage : plan.stages) {
    for (StageReplica& replica : stage.replicas) {
      const auto rank = replica.ranks.front().index();
      // A plan that names its classes is not corrected here.
      if (!replica.device_class.empty() || rank >= cluster.ranks.size()) continue;
      const std::string& name = cluster.ranks[rank].device_class;
      // A replica over devices of two classes has no class name.
      const bool alike = std::all_of(replica.ranks.begin(), replica.ranks.end(), [&](RankId r) {
        const auto member = r.index();
        return member < cluster.ranks.size() && cluster.ranks[member].device_class == name;
      });
      if (alike) replica.device_class = name;
    }
  }
}

/// True where a weight has copies on devices of different names: ranks of one stage, or the stages
/// of a tied weight, of which a plan may have any.
bool has_copies_on_unlike_devices(const Plan& plan, const ModelGraph& graph,
                                  const Placement& placement) {
  const auto is_tied = [](const Node& node) {
    const auto* linear = std::get_if<Linear>(&node.attributes);
    return linear != nullptr && !linear->tied_to.empty();
  };
  if (std::ranges::any_of(graph.nodes(), is_tied)) return has_unlike_devices(placement);
  return std::ranges::any_of(plan.stages, [&](const PlanStage& stage) {
    std::set<std::string> names;
    for (const StageReplica& replica : stage.replicas) {
      for (const RankId rank : replica.ranks) {
        if (rank.index() < placement.devices.size()) {
          names.insert(placement.devices[rank.index()].name);
        }
      }
    }
    return names.size() > 1;
  });
}

RankPlanEvent rank_event(const ChosenPlan& chosen, int rank, const std::vector<double>& busy_s) {
  const std::size_t r = rank;
  const RankRole& role = chosen.roles[r];
  RankPlanEvent event;
  event.rank = rank;
  event.position = role.position.value();
  for (const RankRole::Part& part : role.parts) event.stages.push_back(part.stage.value());
  event.tensor_index = role.parts.front().tensor_index;
  event.tensor_degree = tensor_degree(chosen.plan, role.parts.front());
  event.device_class = chosen.device_class(rank);
  const MemoryLedger& ledger = chosen.memory[r];
  event.weights_bytes = ledger.weights.value();
  event.gradients_bytes = ledger.gradients.value();
  event.optimizer_bytes = ledger.optimizer.value();
  event.activations_bytes = ledger.activations.value();
  event.buffers_bytes = ledger.buffers.value();
  if (chosen.cluster) {
    event.limit_bytes = class_of(*chosen.cluster, RankId(rank)).memory.value();
  } else if (r < chosen.chip_bytes.size() && chosen.chip_bytes[r] > 0) {
    event.limit_bytes = chosen.chip_bytes[r];
  }
  if (chosen.times) event.busy_s = busy_s[r];
  return event;
}

}  // namespace

PlanWorkload plan_workload(const Workload& workload) {
  const SampleSpec& spec = workload.data->spec();
  PlanWorkload result;
  result.name = workload.name;
  (spec.has_text() ? result.size : result.model) = workload.size;
  result.precision = to_string(workload.precision);
  result.optimizer = to_string(workload.recipe.kind);
  if (spec.has_text()) result.sequence_length = spec.length;
  if (spec.fewest_images == 0) result.images = spec.images;
  result.freeze = workload.freeze;
  return result;
}

std::string ChosenPlan::device_class(int rank) const {
  const std::size_t r = rank;
  // On a described cluster classes have the names of the description.
  if (cluster) return cluster->ranks[r].device_class;
  return r < devices.size() ? devices[r] : "cpu";
}

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
    const std::size_t ranks = ready.plan.ranks();
    return ranks == used.ranks.size();
  });
  if (best != found.plans.end()) result.best = std::move(*best);
  return result;
}

ChosenPlan complete_plan(Plan plan, const Workload& workload, std::optional<Cluster> cluster) {
  const bool emulated = cluster && is_emulated(*cluster);
  if (cluster) name_classes(plan, *cluster);
  const TrainingTask task{workload.graph, workload.precision, workload.recipe.kind};
  ChosenPlan chosen{ReadyPlan(task, std::move(plan), std::move(cluster)), {}, {}, emulated, {}};
  if (!emulated) return chosen;
  chosen.predicted();  // an emulated device without a rate cannot run
  chosen.paced = stage_times(task, chosen.staged, chosen.plan, *chosen.cluster);
  return chosen;
}

void slow_down(ChosenPlan& chosen, const Workload& workload, const Slowdown& slowdown) {
  if (slowdown.device_class.empty()) return;
  const std::string problem = fmt::format("pace.slow={} slows nothing", to_string(slowdown));
  if (!chosen.cluster || !chosen.emulated) {
    throw UserError(problem, "the devices of this run are not emulated",
                    "Name a --cluster of paced classes, or leave it out");
  }
  std::set<std::string> names;
  for (const RankPlace& rank : chosen.cluster->ranks) names.insert(rank.device_class);
  if (!names.contains(slowdown.device_class)) {
    throw UserError(problem,
                    fmt::format("the run has no device of class '{}'", slowdown.device_class),
                    fmt::format("Give one of {}", fmt::join(names, ", ")));
  }
  Cluster slower = *chosen.cluster;
  apply(scaled_rates(matrix_of(slower), slowdown.device_class, to_string(workload.precision),
                     1 / slowdown.factor, {Provenance::file, "pace.slow"}),
        slower);
  const TrainingTask task{workload.graph, workload.precision, workload.recipe.kind};
  chosen.paced_change = {slowdown.from_step, stage_times(task, chosen.staged, chosen.plan, slower)};
}

ChosenPlan choose_plan(const RunConfig& config, PlanSources sources, const Workload& workload,
                       const Placement& placement) {
  if (sources.cluster) hold_to_chips(placement, *sources.cluster);
  Plan plan = sources.plan                  ? *sources.plan
              : config.plan.is_searched()   ? searched_plan(config, sources, workload)
              : !config.plan.layout.empty() ? layout_plan_of(config, workload)
                                            : even_plan_of(config, workload, placement.ranks);
  // Copies of a weight that are each updated on a device of their own would part by its roundings:
  // one device updates each weight for all.
  if (plan.zero_stage == 0 && has_copies_on_unlike_devices(plan, workload.graph, placement)) {
    if (sources.plan) {
      throw UserError("the plan has copies of weights on unlike devices",
                      "they would part by the roundings of their updates",
                      "Set its zero_stage to 1, or --device to one for all");
    }
    plan.zero_stage = 1;
  }
  plan.workload = plan_workload(workload);
  if (sources.cluster) plan.cluster = config.cluster.file;
  ChosenPlan chosen = complete_plan(std::move(plan), workload, sources.cluster);
  for (const RankBinding& binding : placement.bindings) chosen.devices.push_back(binding.device);
  for (const RankDevice& device : placement.devices) {
    chosen.chip_bytes.push_back(device.chip ? device.chip->memory_bytes : 0);
  }
  slow_down(chosen, workload, config.pace.slow);
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
      // Bidirectional schedules hold each stage twice; the copies of one direction are the
      // replicas.
      copies += replica.direction == 0 && replica.ends_samples() ? 1 : 0;
      shape.tensor.insert(replica.ranks.size());
      shape.context.insert(replica.part.parts);
      shape.batches.insert(replica.micro_batch);
    }
    shape.data.insert(copies);
  }
  return shape.line();
}

std::string held_share(const Plan& plan, const RankRole& role) {
  std::vector<HeldStage> held;
  for (const RankRole::Part& part : role.parts) {
    held.push_back({part.stage.value(), part.tensor_index, tensor_degree(plan, part)});
  }
  return share_text(held, plan.stages.size());
}

std::vector<Event> plan_events(const ChosenPlan& chosen) {
  std::vector<Event> events;
  const std::vector<double> busy_s = chosen.times ? chosen.busy_s() : std::vector<double>();
  for (int rank = 0; rank < static_cast<int>(chosen.roles.size()); ++rank) {
    events.emplace_back(rank_event(chosen, rank, busy_s));
  }
  if (!chosen.unpredicted.empty()) {
    const std::string why = UserError(chosen.unpredicted).what();
    events.emplace_back(WarningEvent{"no prediction: " + why, ""});
  }
  if (!chosen.prediction) return events;
  const Prediction& prediction = *chosen.prediction;
  // The bubble rate is the share of all ranks' time in which they do not compute.
  const double all_s = prediction.step_time_s * static_cast<double>(chosen.roles.size());
  const double busy = std::accumulate(busy_s.begin(), busy_s.end(), 0.0);
  events.emplace_back(PredictionEvent{prediction.step_time_s, prediction.throughput,
                                      all_s > 0 ? 1 - busy / all_s : 0,
                                      prediction.pipeline.bubble_rate_makespan});
  return events;
}

}  // namespace heteroperf
