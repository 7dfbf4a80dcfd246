#include "tests/unit/results/agreeing_run.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "results/journal_checks/checked_journal.hpp"
#include "workloads/graph/graph_counts.hpp"
#include "workloads/graph/model_graph_json.hpp"
#include "workloads/workload_factories.hpp"

namespace heteroperf {
namespace {

using OrderedJson = nlohmann::ordered_json;

OrderedJson parsed_or_empty(const JsonText& text) {
  return text.text.empty() ? OrderedJson::object() : OrderedJson::parse(text.text);
}

void fill(OrderedJson& json, const char* pointer, const OrderedJson& value) {
  const OrderedJson::json_pointer place(pointer);
  if (!json.contains(place)) json[place] = value;
}
void set(OrderedJson& json, const char* pointer, const OrderedJson& value) {
  json[OrderedJson::json_pointer(pointer)] = value;
}

std::uint32_t device_count(const ScaleEvent& scale) {
  std::uint32_t count = 0;
  for (const DeviceCount& device : scale.devices) count += device.count;
  return count;
}

/// By rank.
std::vector<std::string> classes_of(const ScaleEvent& scale) {
  std::vector<std::string> classes;
  for (const DeviceCount& device : scale.devices) {
    classes.insert(classes.end(), device.count, device.device_class);
  }
  return classes;
}

/// No lines of this kind of ranks that are not there.
template <class E>
void erase_beyond(SampleRun& run, std::int32_t ranks) {
  std::erase_if(run.lines, [&](const JournalLine& line) {
    const E* event = std::get_if<E>(&line.event);
    return event != nullptr && event->rank >= ranks;
  });
}

/// Copies of the last line of this kind for the ranks that lack one.
template <class E>
void spread_over_ranks(SampleRun& run, std::int32_t ranks) {
  std::int32_t next = 0;
  auto last = run.lines.end();
  for (auto line = run.lines.begin(); line != run.lines.end(); ++line) {
    const E* event = std::get_if<E>(&line->event);
    if (event == nullptr) continue;
    next = std::max(next, event->rank + 1);
    last = line;
  }
  if (last == run.lines.end()) return;
  JournalLine copy = *last;
  for (auto place = last - run.lines.begin() + 1; next < ranks; ++next, ++place) {
    std::get<E>(copy.event).rank = next;
    run.lines.insert(run.lines.begin() + place, copy);
  }
}

/// The first rank's observation takes what the others leave of a step.
void observe_all(SampleRun& run) {
  const auto* step = run.find<StepEvent>();
  Ops rest;
  std::size_t count = 0;
  for (JournalLine& line : run.lines) {
    const auto* observed = std::get_if<ObservedEvent>(&line.event);
    if (observed == nullptr) continue;
    rest += observed->strict;
    ++count;
  }
  if (step == nullptr || count == 0 || rest == step->ops_strict) return;
  const bool executed_as_counted =
      run.find<ObservedEvent>()->executed == run.find<ObservedEvent>()->strict;
  if (!executed_as_counted) return;
  for (JournalLine& line : run.lines) {
    auto* observed = std::get_if<ObservedEvent>(&line.event);
    if (observed == nullptr) continue;
    observed->strict = observed->executed = observed->rank == 0 ? step->ops_strict : Ops();
    if (observed->rank != 0) observed->calls = 0;
  }
}

void change_samples(SampleRun& run, const WorkloadEvent& workload) {
  if (!workload.samples_per_step) return;
  for (JournalLine& line : run.lines) {
    auto* step = std::get_if<StepEvent>(&line.event);
    if (step == nullptr || step->samples == *workload.samples_per_step) continue;
    step->samples = *workload.samples_per_step;
    step->ops_strict =
        strict_train_ops(graph_from_text(workload.graph.text, "the sample graph"), step->samples);
  }
}

void agree_on_ranks(SampleRun& run, ScaleEvent& scale) {
  const auto ranks = static_cast<std::int32_t>(device_count(scale));
  if (ranks == 0) return;
  if (scale.groups == 1) {
    erase_beyond<ObservedEvent>(run, ranks);
    erase_beyond<ChecksumEvent>(run, ranks);
    erase_beyond<MemoryEvent>(run, ranks);
  }
  scale.ranks = ranks;
  if (scale.groups != 1) return;
  spread_over_ranks<ObservedEvent>(run, ranks);
  spread_over_ranks<ChecksumEvent>(run, ranks);
  spread_over_ranks<MemoryEvent>(run, ranks);
}

/// CPUs of their own for the threads of a rank.
std::string cpus_of(std::size_t rank, const ScaleEvent& scale) {
  const std::size_t threads = std::max(1U, scale.devices.front().threads);
  const std::size_t first = rank * threads;
  return threads == 1 ? std::to_string(first)
                      : std::to_string(first) + "-" + std::to_string(first + threads - 1);
}

/// True where classes are a cluster's: a rank's device is not what it is bound to.
bool agree_on_binding(JsonText& text, const ScaleEvent& scale) {
  OrderedJson system = parsed_or_empty(text);
  OrderedJson& binding = system["binding"];
  if (!binding.is_array()) binding = OrderedJson::array();
  const std::vector<std::string> classes = classes_of(scale);
  bool cluster = false;
  std::string host = "node";
  const OrderedJson::json_pointer own_host("/host/value");
  if (system.contains(own_host)) host = system[own_host];
  for (std::size_t rank = 0; rank < classes.size(); ++rank) {
    if (rank == binding.size()) binding.push_back(OrderedJson::object());
    OrderedJson& entry = binding[rank];
    if (!entry.is_object()) entry = OrderedJson::object();
    set(entry, "/rank", rank);
    fill(entry, "/host", host);
    host = entry["host"];
    fill(entry, "/cpus", cpus_of(rank, scale));
    fill(entry, "/device", classes[rank]);
    fill(entry, "/bound", true);
    cluster = cluster || entry["device"] != classes[rank];
  }
  while (binding.size() > classes.size()) binding.erase(binding.size() - 1);
  text.text = system.dump();
  return cluster;
}

std::uint64_t steps_of_warmup(const SampleRun& run) {
  std::uint64_t steps = 0;
  for (const JournalLine& line : run.lines) {
    const auto* phase = std::get_if<PhaseEvent>(&line.event);
    if (phase != nullptr && phase->phase == Phase::measure) return steps;
    steps += std::holds_alternative<StepEvent>(line.event);
  }
  return steps;
}

void agree_on_request(SampleRun& run, JsonText& text, bool search, bool cluster) {
  const auto& start = *run.find<StartEvent>();
  const auto& scale = *run.find<ScaleEvent>();
  const auto& workload = *run.find<WorkloadEvent>();
  OrderedJson config = parsed_or_empty(text);
  fill(config, "/_format", "heteroperf-config");
  fill(config, "/_version", 1);
  set(config, "/workload", workload.name);
  set(config, "/quick", start.quick);
  set(config, "/seed", workload.seeds.empty() ? 42 : workload.seeds.front().second);
  set(config,
      config.contains(OrderedJson::json_pointer("/model/name")) ? "/model/name" : "/model/size",
      workload.size);
  set(config, "/model/precision", workload.precision);
  fill(config, "/data/source", "idx:data");
  set(config, "/scale/ranks", scale.ranks);
  set(config, "/scale/threads_per_rank", scale.devices.empty() ? 1 : scale.devices.front().threads);
  set(config, "/scale/transport", scale.transport);
  if (cluster) set(config, "/cluster/file", "some_cluster");
  if (config["measure"].is_null() || !config["measure"].contains("steps")) {
    fill(config, "/measure/duration_s", 1.0);
  }
  set(config, "/measure/warmup_steps", steps_of_warmup(run));
  if (const auto* until = run.find<UntilEvent>()) {
    set(config, "/measure/until_percent", 100 * until->requested_fraction);
    set(config, "/measure/until_after_s", until->fewest_s);
  }
  const char* evaluated = search ? "/automl/evaluation_samples" : "/measure/evaluation_samples";
  if (const auto* eval = run.find<EvalEvent>()) {
    set(config, evaluated, eval->samples);
  } else {
    fill(config, evaluated, 100);
  }
  if (search) {
    set(config, "/automl/group_ranks", scale.ranks / scale.groups);
    fill(config, "/automl/rungs", 1);
    fill(config, "/batch/micro_batch", 64);
    fill(config, "/batch/micro_batches", 1);
  }
  text.text = config.dump();
}

/// The workload's own settings and the configuration's copy of them.
void agree_on_settings(JsonText& config_text, WorkloadEvent& workload, bool search) {
  OrderedJson config = parsed_or_empty(config_text), stated = parsed_or_empty(workload.config);
  set(stated, "/size", workload.size);
  set(stated, "/model",
      search ? "small" : parsed_or_empty(workload.graph).value("name", std::string()));
  if (search) {
    set(stated, "/micro_batch", config["batch"]["micro_batch"]);
    set(stated, "/micro_batches", config["batch"]["micro_batches"]);
  }
  for (const char* name :
       {"/optimizer/name", "/optimizer/schedule", "/optimizer/weight_decay", "/optimizer/clip_norm",
        "/optimizer/warmup_steps", "/optimizer/learning_rate"}) {
    const OrderedJson::json_pointer place(name);
    if (stated.contains(place)) {
      config[place] = stated[place];
    } else if (config.contains(place)) {
      stated[place] = config[place];
    }
  }
  config_text.text = config.dump();
  workload.config.text = stated.dump();
}

struct AskedDegrees {
  int pipeline = 1, tensor = 1, data = 1;
};

/// The degrees of the summary; else a replica on each rank that has samples for it, or one
/// pipeline.
AskedDegrees degrees_of(const std::string& summary, std::int32_t ranks, std::uint64_t samples) {
  AskedDegrees degrees;
  const bool asked = std::sscanf(summary.c_str(), "pp %d x tp %d x dp %d", &degrees.pipeline,
                                 &degrees.tensor, &degrees.data) == 3;
  const bool fits = degrees.pipeline * degrees.tensor * degrees.data == ranks;
  if (asked && fits) return degrees;
  const bool enough = samples >= static_cast<std::uint64_t>(ranks);
  return enough ? AskedDegrees{1, 1, ranks} : AskedDegrees{ranks, 1, 1};
}

/// Samples of a micro-batch on each replica, and micro-batches, that make a step.
struct Batches {
  std::vector<std::uint64_t> each;
  std::uint64_t count = 1;
};

Batches batches_of(const OrderedJson& config, std::uint64_t samples, const std::string& summary,
                   std::size_t replicas) {
  Batches batches;
  const auto asked = config.value(OrderedJson::json_pointer("/batch/micro_batch"), 0);
  int count = 1, batch = 0;
  const auto comma = summary.rfind(", ");
  if (comma != std::string::npos) {
    std::sscanf(summary.c_str() + comma, ", %d micro-batches of %d", &count, &batch);
  }
  const auto each = static_cast<std::uint64_t>(asked > 0 ? asked : batch);
  if (each > 0 && samples % (each * replicas) == 0) {
    batches.each.assign(replicas, each);
    batches.count = samples / (each * replicas);
    return batches;
  }
  for (std::size_t i = 0; i < replicas; ++i) {
    batches.each.push_back(
        std::max<std::uint64_t>(1, samples / replicas + (i < samples % replicas ? 1 : 0)));
  }
  return batches;
}

void agree_on_search_plan(PlanEvent& plan, const ScaleEvent& scale) {
  OrderedJson groups = OrderedJson::array();
  const std::int32_t each = scale.ranks / scale.groups;
  for (std::int32_t group = 0; group < scale.groups; ++group) {
    OrderedJson ranks = OrderedJson::array();
    for (std::int32_t rank = group * each; rank < (group + 1) * each; ++rank) ranks.push_back(rank);
    groups.push_back({{"ranks", ranks}});
  }
  OrderedJson json = parsed_or_empty(plan.plan);
  set(json, "/_format", "heteroperf-search-plan");
  set(json, "/groups", groups);
  plan.plan.text = json.dump();
}

/// True of a plan that a test gave so, or that was made to agree before.
bool agrees(const PlanEvent& plan, const ScaleEvent& scale, const WorkloadEvent& workload,
            bool cluster) {
  if (!parsed_or_empty(plan.plan).contains("_format")) return false;
  const PlanOutline outline = read_plan_outline(plan.plan.text);
  if (outline.of_search || plan.summary != outline.shape().line()) return false;
  const std::vector<std::string> classes = classes_of(scale);
  if (outline.groups.front().size() != classes.size()) return false;
  for (std::size_t rank = 0; rank < classes.size(); ++rank) {
    const OutlinedReplica* replica = outline.replica_of(static_cast<std::int32_t>(rank));
    if (replica == nullptr || (cluster && replica->device_class != classes[rank])) return false;
  }
  return outline.samples_per_step() == workload.samples_per_step &&
         outline.workload == workload.name && outline.size == workload.size &&
         outline.precision == workload.precision;
}

void agree_on_plan(SampleRun& run, const OrderedJson& config, bool cluster) {
  auto& plan = *run.find<PlanEvent>();
  const auto& scale = *run.find<ScaleEvent>();
  const auto& workload = *run.find<WorkloadEvent>();
  const bool asked = config.value(OrderedJson::json_pointer("/batch/micro_batch"), 0) > 0;
  if (!asked && agrees(plan, scale, workload, cluster)) return;
  const AskedDegrees degrees = degrees_of(plan.summary, scale.ranks, *workload.samples_per_step);
  const std::vector<std::string> classes = classes_of(scale);
  const Batches batches = batches_of(config, *workload.samples_per_step, plan.summary,
                                     static_cast<std::size_t>(degrees.data));
  OrderedJson stages = OrderedJson::array();
  std::size_t rank = 0;
  for (int stage = 0; stage < degrees.pipeline; ++stage) {
    OrderedJson replicas = OrderedJson::array();
    for (const std::uint64_t batch : batches.each) {
      OrderedJson ranks = OrderedJson::array();
      const std::string name = classes.at(rank);
      for (int i = 0; i < degrees.tensor; ++i) ranks.push_back(rank++);
      replicas.push_back({{"ranks", ranks}, {"micro_batch", batch}});
      if (cluster) replicas.back()["device_class"] = name;
    }
    stages.push_back({{"replicas", replicas}});
  }
  OrderedJson json = parsed_or_empty(plan.plan);
  set(json, "/_format", "heteroperf-plan");
  set(json, "/workload",
      {{"name", workload.name}, {"size", workload.size}, {"precision", workload.precision}});
  fill(json, "/schedule", "1f1b");
  set(json, "/micro_batches", batches.count);
  set(json, "/stages", stages);
  plan.plan.text = json.dump();
  plan.summary = read_plan_outline(plan.plan.text).shape().line();
}

/// A search starts from the net of its size.
void agree_on_start(SampleRun& run, WorkloadEvent& workload) {
  const auto* trial = run.find<TrialEvent>();
  if (trial == nullptr || trial->graph.text.empty()) return;
  const ModelGraph graph = graph_from_text(trial->graph.text, "a trial's graph");
  workload.size = "w16";
  workload.graph_hash = search_start(workload.size, sample_of(graph)).hash();
}

void agree_on_shares(SampleRun& run) {
  const PlanOutline outline = read_plan_outline(run.find<PlanEvent>()->plan.text);
  for (JournalLine& line : run.lines) {
    auto* checksum = std::get_if<ChecksumEvent>(&line.event);
    if (checksum == nullptr) continue;
    checksum->share = share_text(outline.stages_of(checksum->rank), outline.stages.size());
  }
}

void add_pacing(SampleRun& run, const ScaleEvent& scale) {
  const bool emulated = !scale.devices.empty() && scale.devices.front().emulated;
  const auto* stop = run.find<StopEvent>();
  if (!emulated || stop == nullptr || run.find<PacingEvent>() != nullptr) return;
  for (std::int32_t rank = 0; rank < scale.ranks; ++rank) {
    run.insert_before_stop(PacingEvent{rank, 1, 0, 0, 0});
  }
}

template <class E>
bool has_line_of(const SampleRun& run, std::int32_t rank) {
  return std::any_of(run.lines.begin(), run.lines.end(), [&](const JournalLine& line) {
    const E* event = std::get_if<E>(&line.event);
    return event != nullptr && event->rank == rank;
  });
}

/// What every rank of a fixed model says of the measured steps, as if all did the same.
struct MeanRank {
  RankTimeEvent time;
  RankStepsEvent steps;
};

MeanRank mean_rank_of(const SampleRun& run) {
  MeanRank mean;
  bool measuring = false;
  std::int64_t start_ns = 0, end_ns = 0;
  for (const JournalLine& line : run.lines) {
    const auto* phase = std::get_if<PhaseEvent>(&line.event);
    if (phase != nullptr && phase->phase == Phase::measure) measuring = true;
    const auto* step = std::get_if<StepEvent>(&line.event);
    if (step == nullptr || !measuring) continue;
    if (mean.time.steps++ == 0) {
      mean.time.first_step = step->n;
      start_ns = step->t_start_ns;
    }
    end_ns = step->t_end_ns;
    mean.time.split.compute_s += step->split.compute_s;
    mean.time.split.communication_s += step->split.communication_s;
    mean.time.split.bubble_s += step->split.bubble_s;
    mean.time.split.data_s += step->split.data_s;
  }
  mean.time.wall_s = 1e-9 * static_cast<double>(end_ns - start_ns);
  mean.steps.first_step = mean.time.first_step;
  mean.steps.steps = mean.steps.steps_per_value = mean.time.steps;
  return mean;
}

RankPlanEvent rank_plan_of(const PlanOutline& plan, std::int32_t rank, const ScaleEvent& scale) {
  RankPlanEvent event;
  event.rank = rank;
  event.position = plan.place_of(rank).position;
  for (const HeldStage& held : plan.stages_of(rank)) event.stages.push_back(held.stage);
  event.tensor_index = plan.stages_of(rank).front().tensor_index;
  event.tensor_degree = plan.stages_of(rank).front().tensor_degree;
  event.device_class = classes_of(scale).at(static_cast<std::size_t>(rank));
  return event;
}

/// The lines of ranks that a complete run of a fixed model has.
void add_lines_of_ranks(SampleRun& run, const ScaleEvent& scale) {
  const PlanOutline plan = read_plan_outline(run.find<PlanEvent>()->plan.text);
  MeanRank mean = mean_rank_of(run);
  for (std::int32_t rank = 0; rank < scale.ranks; ++rank) {
    if (!has_line_of<RankPlanEvent>(run, rank)) {
      run.insert_before_stop(rank_plan_of(plan, rank, scale));
    }
    if (mean.time.steps == 0) continue;
    if (!has_line_of<RankTimeEvent>(run, rank)) {
      mean.time.rank = rank;
      for (const JournalLine& line : run.lines) {
        const auto* observed = std::get_if<ObservedEvent>(&line.event);
        if (observed == nullptr || observed->rank != rank) continue;
        mean.time.strict = observed->strict * mean.time.steps;
        mean.time.recompute = observed->recompute * mean.time.steps;
      }
      run.insert_before_stop(mean.time);
    }
    if (has_line_of<RankStepsEvent>(run, rank)) continue;
    mean.steps.rank = rank;
    for (const JournalLine& line : run.lines) {
      const auto* time = std::get_if<RankTimeEvent>(&line.event);
      if (time == nullptr || time->rank != rank) continue;
      mean.steps.compute_ns = {
          std::llround(1e9 * time->split.compute_s / static_cast<double>(mean.time.steps))};
    }
    run.insert_before_stop(mean.steps);
  }
}

/// The checksums of a complete search's trials, each on one rank.
void add_trial_checksums(SampleRun& run) {
  if (run.find<ChecksumEvent>() != nullptr) return;
  std::map<std::uint64_t, ChecksumEvent> ends;
  for (const JournalLine& line : run.lines) {
    const auto* step = std::get_if<StepEvent>(&line.event);
    if (step == nullptr || !step->trial) continue;
    ends[*step->trial] = {step->group, step->group,          step->trial,
                          step->n + 1, std::string(32, 'c'), ""};
  }
  for (const auto& [trial, checksum] : ends) run.insert_before_stop(checksum);
}

}  // namespace

void make_agree(SampleRun& run) {
  auto* workload = run.find<WorkloadEvent>();
  if (workload == nullptr) return;
  ScaleEvent scale = *run.find<ScaleEvent>();
  agree_on_ranks(run, scale);
  *run.find<ScaleEvent>() = scale;
  workload = run.find<WorkloadEvent>();
  change_samples(run, *workload);
  if (scale.groups == 1) observe_all(run);
  const bool search = workload->graph.text.empty();
  if (search) agree_on_start(run, *workload);
  const OrderedJson asked = parsed_or_empty(run.find<ConfigEvent>()->config);
  workload->size = asked.value(OrderedJson::json_pointer("/model/name"), workload->size);
  JsonText& config = run.find<ConfigEvent>()->config;
  const bool cluster = agree_on_binding(run.find<SystemEvent>()->system, scale);
  agree_on_request(run, config, search, cluster);
  agree_on_settings(config, *workload, search);
  if (search) {
    agree_on_search_plan(*run.find<PlanEvent>(), scale);
  } else {
    agree_on_plan(run, parsed_or_empty(config), cluster);
    agree_on_shares(run);
  }
  auto& start = *run.find<StartEvent>();
  const std::string command =
      "heteroperf run " + workload->name + (start.quick ? " --quick" : "") + " ";
  if (!start.reproduce.starts_with(command)) start.reproduce = command + "--seed 42";
  add_pacing(run, scale);
}

void add_due_lines(SampleRun& run) {
  const auto* stop = run.find<StopEvent>();
  const auto* workload = run.find<WorkloadEvent>();
  if (workload == nullptr || stop == nullptr || stop->status != RunStatus::complete) return;
  if (workload->graph.text.empty()) return add_trial_checksums(run);
  add_lines_of_ranks(run, ScaleEvent(*run.find<ScaleEvent>()));
}

}  // namespace heteroperf
