#include "tests/unit/results/sample_run.hpp"

#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <limits>

#include "metrics/base/clock.hpp"
#include "results/journal/journal.hpp"
#include "results/journal_checks/journal_checks.hpp"
#include "results/record/ruleset.hpp"
#include "results/record/run_summary.hpp"
#include "results/record/suite_record.hpp"
#include "results/text/sha256.hpp"
#include "tests/unit/results/agreeing_run.hpp"
#include "workloads/graph/graph_counts.hpp"
#include "workloads/graph/model_graph_json.hpp"
#include "workloads/workload_factories.hpp"

namespace heteroperf {
namespace {

constexpr std::uint64_t sample_count = 64;
constexpr double nanoseconds_per_second = 1e9;

StartEvent sample_start() {
  StartEvent start;
  start.run_id = "20260101T101500Z-image-0123abcd";
  start.created_utc = "2026-01-01T10:15:00Z";
  start.argv = {"heteroperf", "run", "image"};
  start.reproduce = "heteroperf run image --seed 42";
  start.program_version = "0.1.0";
  start.git_commit = "abcdef";
  start.build_type = "Release";
  start.binary_sha256 = std::string(64, 'b');
  return start;
}

WorkloadEvent sample_workload(const ModelGraph& graph) {
  WorkloadEvent workload;
  workload.name = "image";
  workload.size = "resnet18";
  workload.unit = "image";
  workload.precision = "fp32";
  workload.samples_per_step = sample_count;
  workload.parameters = graph.parameter_count();
  workload.graph_hash = graph.hash();
  workload.graph = {graph_to_text(graph)};
  workload.data = "generated images, seed 1";
  workload.data_fingerprint = std::string(32, 'd');
  workload.quality_target = 0.5 * (1.0 / 3 + 1);  // of three classes, half of the way
  workload.config = {R"({"optimizer":{"kind":"sgd","learning_rate":0.1}})"};
  workload.seeds = {{"run", 42}};
  return workload;
}

/// Appends lines on a clock of its own.
class Script {
 public:
  explicit Script(std::int64_t now_ns) : now_ns_(now_ns) {}

  SampleRun run;

  void add(Event event) { run.lines.push_back({now_ns_, std::move(event)}); }
  void advance(double seconds) {
    now_ns_ += static_cast<std::int64_t>(seconds * nanoseconds_per_second);
  }
  std::int64_t now_ns() const { return now_ns_; }

  void add_preamble(int ranks, int groups, const ModelGraph& graph) {
    add(sample_start());
    add(ConfigEvent{{R"({"run":{"steps":30},"seed":42})"}});
    add(SystemEvent{{R"({"cpu":{"value":"some cpu","status":"ok"}})"}});
    add(PlanEvent{{R"({"replicas":2})"}});
    ScaleEvent scale;
    scale.ranks = ranks;
    scale.groups = groups;
    scale.transport = "threads";
    scale.devices = {{"cpu", static_cast<std::uint32_t>(ranks), 1, false}};
    add(scale);
    add(sample_workload(graph));
    add(PhaseEvent{Phase::setup, std::nullopt});
    advance(1);
    add(PeakEvent{1e12, "fp32", "measured"});
  }

  void add_phase_of_groups(Phase phase, std::int32_t groups) {
    for (std::int32_t group = 0; group < groups; ++group) add(PhaseEvent{phase, group});
  }

  void add_step(const ModelGraph& graph, std::int32_t group, std::optional<std::uint64_t> trial,
                std::uint64_t n, double seconds, double loss) {
    StepEvent step;
    step.group = group;
    step.trial = trial;
    step.n = n;
    step.t_start_ns = now_ns_;
    advance(seconds);
    step.t_end_ns = now_ns_;
    step.samples = sample_count;
    step.ops_strict = strict_train_ops(graph, sample_count);
    step.loss = loss;
    step.gradient_norm = 1.5;
    step.split = {seconds * 0.7, seconds * 0.2, seconds * 0.05, seconds * 0.05};
    add(step);
  }

  void add_observation(const ModelGraph& graph, std::int32_t rank, std::int32_t group,
                       std::optional<std::uint64_t> trial, int ranks_of_group) {
    ObservedEvent observed;
    observed.rank = rank;
    observed.group = group;
    observed.trial = trial;
    observed.strict =
        strict_train_ops(graph, sample_count / static_cast<std::uint64_t>(ranks_of_group));
    observed.executed = observed.strict;
    observed.calls = 9;
    add(observed);
  }

  void add_evaluation(const ModelGraph& graph, std::int32_t group,
                      std::optional<std::uint64_t> trial, double accuracy) {
    EvalEvent eval;
    eval.group = group;
    eval.trial = trial;
    eval.samples = 100;
    eval.loss = 0.9;
    eval.accuracy = accuracy;
    eval.ops_strict = strict_forward_ops(graph, 100);
    eval.t_start_ns = now_ns_;
    advance(0.5);
    eval.t_end_ns = now_ns_;
    add(eval);
  }

  void add_end(int ranks) {
    for (int rank = 0; rank < ranks; ++rank) {
      add(MemoryEvent{rank, 1000u + static_cast<std::uint64_t>(rank)});
    }
    add(OverheadEvent{0.01});
    add(StopEvent{});
  }

 private:
  std::int64_t now_ns_;
};

/// The run of a class alone that did, about, so many samples a second.
void write_baseline(const RunFiles& mix, const Journal& of_mix, BaselineEvent& baseline) {
  constexpr double noise_median = 1.02;  // of fixed_run()
  const auto samples = static_cast<double>(sample_count);
  SampleRun run =
      fixed_run({.ranks = 1, .step_s = samples / (*baseline.samples_per_s * noise_median)});
  run.last<ScaleEvent>().devices = {{baseline.device_class, 1, 1, false}};
  if (baseline.planned_samples_per_s) {
    const double step_s = samples / *baseline.planned_samples_per_s;
    RankPlanEvent plan;
    plan.device_class = baseline.device_class;
    plan.stages = {0};
    plan.busy_s = step_s;
    run.insert_before_stop(plan);
    run.insert_before_stop(PredictionEvent{step_s, *baseline.planned_samples_per_s, 0, 0});
  }
  baseline.folder = "baseline-" + baseline.device_class;
  const RunFiles files{mix.folder / baseline.folder};
  run.write_finished(files);
  const Journal journal = read_journal(files.journal().string());
  baseline.plan = journal.first<PlanEvent>()->summary;
  const BaselineResult result = baseline_result(journal, of_mix);
  baseline.samples_per_s = result.samples_per_s;
  baseline.loss_difference = result.loss_difference;
  baseline.record_sha256 = sha256_file_hex(files.record().string());
}

}  // namespace

TemporaryFolder::TemporaryFolder() {
  std::string pattern = (std::filesystem::temp_directory_path() / "heteroperf-XXXXXX").string();
  path_ = ::mkdtemp(pattern.data());
}
TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string SampleRun::text() const {
  std::string text, prev(no_previous_line);
  for (const JournalLine& line : lines) {
    const std::string json = event_to_json_line(line.t_ns, line.event, prev);
    prev = sha256_hex(json);
    text += json + '\n';
  }
  return text;
}

Journal SampleRun::journal() const { return parse_journal(text(), "journal.jsonl"); }

void SampleRun::write(const RunFiles& files) const {
  std::filesystem::create_directories(files.folder);
  SampleRun agreeing = *this;
  make_agree(agreeing);
  add_due_lines(agreeing);
  for (JournalLine& line : agreeing.lines) {
    auto* baseline = std::get_if<BaselineEvent>(&line.event);
    if (baseline == nullptr || !baseline->samples_per_s) continue;
    if (!baseline->record_sha256.empty()) continue;
    write_baseline(files, agreeing.journal(), *baseline);
  }
  std::ofstream(files.journal(), std::ios::binary) << agreeing.text();
}

void SampleRun::write_finished(const RunFiles& files) const {
  write(files);
  finish_run(files);
}

void SampleRun::insert_before_stop(Event event) {
  const std::size_t stop = index<StopEvent>();
  lines.insert(lines.begin() + static_cast<std::ptrdiff_t>(stop),
               {lines[stop].t_ns, std::move(event)});
}

void SampleRun::erase_steps() {
  erase_all<StepEvent>();
  for (JournalLine& line : lines) {
    if (auto* checksum = std::get_if<ChecksumEvent>(&line.event)) checksum->n = 0;
  }
}

ModelGraph small_classifier(std::int64_t hidden) {
  ModelGraph graph;
  graph.name = "small";
  Input input;
  input.channels = 1;
  input.height = input.width = 4;
  NodeId node = graph.add("input", input, {});
  node = graph.add("flatten", Flatten{}, {node});
  node = graph.add("hidden", Linear{hidden, true, ""}, {node});
  node = graph.add("relu", Relu{}, {node});
  node = graph.add("head", Linear{3, true, ""}, {node});
  graph.add("loss", CrossEntropy{}, {node});
  return graph;
}

ModelGraph fixed_classifier() {
  return model_for("resnet18", {.channels = 1, .height = 8, .width = 8, .classes = 3});
}

SampleRun fixed_run(const SampleRunOptions& options) {
  const ModelGraph graph = fixed_classifier();
  Script script(options.epoch_ns);
  script.add_preamble(options.ranks, 1, graph);
  script.add(PhaseEvent{Phase::warmup, std::nullopt});
  std::uint64_t n = 0;
  for (int i = 0; i < options.warmup_steps; ++i, ++n) {
    script.add_step(graph, 0, std::nullopt, n, options.step_s * 2, 2.0);
    if (n > 0) continue;
    for (int rank = 0; rank < options.ranks; ++rank) {
      script.add_observation(graph, rank, 0, std::nullopt, options.ranks);
    }
  }
  script.add(PhaseEvent{Phase::measure, std::nullopt});
  for (int i = 0; i < options.steps; ++i, ++n) {
    // A little noise without a trend.
    const double noise = 1 + 0.01 * static_cast<double>((i * 7) % 5);
    script.add_step(graph, 0, std::nullopt, n, options.step_s * noise, 1.0);
  }
  script.add(PhaseEvent{Phase::finish, std::nullopt});
  for (int rank = 0; rank < options.ranks; ++rank) {
    script.add(ChecksumEvent{rank, 0, std::nullopt, n, std::string(32, 'c')});
  }
  script.add(PhaseEvent{Phase::evaluate, std::nullopt});
  script.add_evaluation(graph, 0, std::nullopt, 0.8);
  script.run.last<EvalEvent>().is_final = true;
  script.add_end(options.ranks);
  make_agree(script.run);
  return std::move(script.run);
}

SampleRun planned_run() {
  SampleRun run = fixed_run();
  run.last<ScaleEvent>().devices = {{"fast", 1, 1, true}, {"slow", 1, 1, true}};
  run.last<PlanEvent>() = {{}, "pp 2 x tp 1 x dp 1, 1f1b, 8 micro-batches of 8"};
  constexpr double wall_s = 30 * 12.24;
  const Ops per_step = run.last<StepEvent>().ops_strict;
  const char* const classes[] = {"fast", "slow"};
  const StepSplit splits[] = {{0.75 * wall_s, 0.05 * wall_s, 0.125 * wall_s, 0, 0.075 * wall_s},
                              {0.5 * wall_s, 0, 0.375 * wall_s, 0.0625 * wall_s, 0.0625 * wall_s}};
  for (std::int32_t rank = 0; rank < 2; ++rank) {
    RankPlanEvent plan;
    plan.rank = plan.position = rank;
    plan.stages = {rank};
    plan.device_class = classes[rank];
    plan.weights_bytes = 400;
    plan.gradients_bytes = 300;
    plan.optimizer_bytes = 100;
    plan.activations_bytes = 150;
    plan.buffers_bytes = 50;
    plan.limit_bytes = 1001;
    plan.busy_s = rank == 0 ? 4.5 : 3.0;
    run.insert_before_stop(plan);
    RankTimeEvent time;
    time.rank = rank;
    time.first_step = 2;
    time.steps = 30;
    time.wall_s = wall_s;
    time.split = splits[rank];
    time.strict = per_step * 15;
    run.insert_before_stop(time);
    run.insert_before_stop(PacingEvent{rank, 2.0, 500, static_cast<std::uint64_t>(rank), 0.25});
  }
  for (JournalLine& line : run.lines) {
    if (auto* checksum = std::get_if<ChecksumEvent>(&line.event)) {
      checksum->fingerprint = std::string(32, checksum->rank == 0 ? 'a' : 'b');
    } else if (auto* step = std::get_if<StepEvent>(&line.event)) {
      const double seconds = 1e-9 * static_cast<double>(step->t_end_ns - step->t_start_ns);
      step->split = {0.625 * seconds, 0.025 * seconds, 0.25 * seconds, 0.03125 * seconds, 0};
    }
  }
  run.insert_before_stop(PredictionEvent{6.0, 64 / 6.0, 0.375, 0.3});
  BaselineEvent fast{"fast", 1, "pp 1 x tp 1 x dp 1, 1f1b, 8 micro-batches of 8", 8.0, 7.0, {}, "",
                     "",     ""};
  BaselineEvent slow = fast;
  slow.device_class = "slow";
  slow.planned_samples_per_s = 4.0;
  slow.samples_per_s = 3.5;
  run.insert_before_stop(fast);
  run.insert_before_stop(slow);
  make_agree(run);
  return run;
}

SampleRun search_run() {
  constexpr int group_count = 2, step_count = 12;
  Script script(5'000'000'000);
  script.add_preamble(group_count, group_count, small_classifier());
  auto& workload = script.run.last<WorkloadEvent>();
  workload.name = "automl-image";
  workload.size = "small";
  workload.graph.text.clear();
  workload.parameters = 0;
  workload.samples_per_step.reset();
  auto& start = script.run.last<StartEvent>();
  start.run_id = "20260101T101500Z-automl-image-0123abcd";
  start.reproduce = "heteroperf run automl-image --seed 42";
  script.add_phase_of_groups(Phase::warmup, group_count);
  script.add_phase_of_groups(Phase::measure, group_count);
  for (std::uint64_t id = 0; id < 3; ++id) {
    const ModelGraph graph = small_classifier(8 + static_cast<std::int64_t>(id));
    TrialEvent trial;
    trial.id = id;
    if (id > 0) trial.parent = 0;
    trial.group = static_cast<std::int32_t>(id % group_count);
    trial.morph = id > 0 ? "wider" : "";
    trial.graph_hash = graph.hash();
    trial.graph = {graph_to_text(graph)};
    trial.hyper_parameters = {R"({"batch":64,"learning_rate":0.1})"};
    trial.t_start_ns = script.now_ns();
    script.add(trial);
    trial.graph.text.clear();
    const bool diverges = id == 1;
    for (std::uint64_t n = 0; n < step_count; ++n) {
      const double loss =
          diverges && n + 1 == step_count ? std::numeric_limits<double>::quiet_NaN() : 1;
      script.add_step(graph, trial.group, id, n, 10, loss);
      if (n == 0) script.add_observation(graph, trial.group, trial.group, id, 1);
      trial.ops += script.run.last<StepEvent>().ops_strict;
    }
    trial.steps = step_count;
    trial.state = diverges ? TrialStatus::diverged : TrialStatus::completed;
    trial.reason = diverges ? "loss is NaN" : "";
    if (!diverges) {
      trial.rung = 1;
      trial.quality = 0.6 + 0.1 * static_cast<double>(id);
      script.add_evaluation(graph, trial.group, id, *trial.quality);
      trial.loss = script.run.last<EvalEvent>().loss;
    }
    trial.t_end_ns = script.now_ns();
    script.add(trial);
  }
  script.add_phase_of_groups(Phase::finish, group_count);
  script.add(SearchEvent{3, 1, 9, 0, 0.002, 0.004, 3.65});
  script.add(PhaseEvent{Phase::evaluate, std::nullopt});
  script.add_evaluation(small_classifier(10), 0, 2, 0.8);
  script.run.last<EvalEvent>().is_final = true;
  script.add_end(group_count);
  make_agree(script.run);
  return std::move(script.run);
}

SampleRun part_of_suite(SampleRun run, const SuitePlan& suite, const std::string& workload) {
  auto& start = run.last<StartEvent>();
  start.run_id = workload + " of " + suite.run_id;
  start.suite = suite;
  start.suite_workload = workload;
  run.last<WorkloadEvent>().name = workload;
  return run;
}

SuitePlan whole_suite(const std::string& run_id) {
  return {run_id, "2026-01-01T10:15:00Z", {suite_workloads.begin(), suite_workloads.end()}};
}

void store_suite(const std::filesystem::path& folder, const SuitePlan& suite) {
  SampleRunOptions options;
  const double measured_s = options.step_s * options.steps;
  for (const std::string& workload : suite.workloads) {
    options.step_s = measured_s / options.steps;
    part_of_suite(fixed_run(options), suite, workload).write_finished({folder / workload});
    options.steps *= 2;
  }
  write_suite_record(folder, suite);
}

double rate_under_peak(SampleRun& run) {
  const Journal journal = run.journal();
  return *summarize(journal).utilization * measured_peak(journal)->ops_per_second;
}

}  // namespace heteroperf
