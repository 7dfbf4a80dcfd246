#include "suite/run/resume.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "results/run_folder.hpp"
#include "runners/comm/world.hpp"
#include "runners/engine/checkpoint/checkpoint.hpp"
#include "runners/engine/checkpoint/checkpoint_folder.hpp"
#include "suite/run/run_config_json.hpp"
#include "suite/run/training_identity_json.hpp"

namespace heteroperf {
namespace {

namespace fs = std::filesystem;

/// Keys, or beginnings of keys, that leave the training as it is. Data may have moved: what they
/// are is checked by their fingerprint.
constexpr std::array<std::string_view, 12> changeable{
    "scale.", "batch.",      "plan.",       "cluster.", "pace.",     "measure.",
    "comm.",  "checkpoint.", "data.source", "out",      "rank_logs", "trace"};

/// What the journal of the other run says of it.
struct OtherRun {
  fs::path folder;
  StartEvent start;
  RunConfig config;
  WorkloadEvent workload;
  TrainingIdentity training;
};

OtherRun read_other(const fs::path& path) {
  const RunFiles files = open_run_folder(path);
  if (fs::exists(files.suite())) {
    throw UserError(
        path.string() + " is a suite", "one run can go on, not several",
        fmt::format("Give the folder of one workload: {}", (files.folder / "llm").string()));
  }
  const Journal journal = read_journal(files.journal().string());
  const auto* config = journal.last<ConfigEvent>();
  const auto* workload = journal.first<WorkloadEvent>();
  if (config == nullptr || workload == nullptr) {
    throw UserError("the run in " + files.folder.string() + " cannot go on",
                    "it ended before its journal said what is trained", "Start it again.");
  }
  TrainingIdentity training = training_identity(*workload);
  return {files.folder, *journal.first<StartEvent>(),
          run_config_from_json_text(config->config.text), *workload, std::move(training)};
}

bool is_given(const std::vector<Setting>& settings, const std::string& path) {
  return std::any_of(settings.begin(), settings.end(),
                     [&](const Setting& setting) { return setting.path == path; });
}

void check_settings(const std::vector<Setting>& settings, ProblemList& problems) {
  for (const Setting& setting : settings) {
    if (can_change_on_resume(setting.path)) continue;
    problems.add(shown(setting) + " is not possible here", "it would be another training",
                 "Leave it out, or start anew with `heteroperf run`.");
  }
}

/// The configuration to go on with before `settings` are applied: what they replace is taken out.
RunConfig base_for(const OtherRun& other, const std::vector<Setting>& settings) {
  RunConfig base = other.config;
  base.out.clear();
  base.trace.clear();
  const auto given = [&](const char* path) { return is_given(settings, path); };
  const bool degrees = given("plan.pipeline") || given("plan.tensor") || given("plan.data");
  const bool ranks = given("scale.ranks"), file = given("plan.file");
  if (file) base.batch = {};
  if (file || (!base.plan.file.empty() && (degrees || ranks))) base.plan = {};
  if (degrees || ranks) base.plan.data = 0;
  if (!ranks && (file || given("plan.data") || given("cluster.file"))) base.scale.ranks = 0;
  // The plan as it ran, wherever its file has gone.
  const fs::path stored = RunFiles{other.folder}.plan();
  if (!base.plan.file.empty() && fs::exists(stored)) base.plan.file = fs::absolute(stored).string();
  return base;
}

/// Replicas of an even plan that share the samples of a micro-batch; 0: not known here.
std::int64_t replicas_of(const RunConfig& config) {
  const PlanConfig& plan = config.plan;
  return plan.data > 0 ? plan.data : config.scale.ranks / (plan.pipeline * plan.tensor);
}

/// With other replicas, as many samples per step as before. A plan's file says its own.
void keep_batch(const OtherRun& other, const std::vector<Setting>& settings, RunConfig& config,
                ProblemList& problems) {
  const std::int64_t replicas = replicas_of(config);
  const bool settled = is_given(settings, "batch.micro_batches") || !config.plan.file.empty();
  if (settled || replicas < 1) return;
  const auto samples = static_cast<std::int64_t>(*other.workload.samples_per_step);
  const std::int64_t at_once = replicas * config.batch.micro_batch;
  if (at_once > 0 && samples % at_once == 0) {
    config.batch.micro_batches = samples / at_once;
    return;
  }
  problems.add(fmt::format("{} samples per step do not fit {} replicas", samples, replicas),
               fmt::format("micro-batches of {} on each; the step must stay the same",
                           config.batch.micro_batch),
               "Use another --micro-batch or other --ranks.");
}

void check_steps_left(const RunConfig& config, const CheckpointState& state,
                      ProblemList& problems) {
  if (config.measure.steps == 0 || config.measure.steps > state.step) return;
  problems.add(fmt::format("no step is left of {}", config.measure.steps),
               fmt::format("the checkpoint has {} done", state.step),
               "Give --steps, the whole training's, or --duration.");
}

std::string told(const std::string& value) { return value.empty() ? "nothing" : value; }

std::string hint_about(const std::string& field) {
  const bool length = field == "optimizer.total_steps" || field == "optimizer.schedule";
  return length ? "The rate decays to the last step: leave out --steps and --duration." : "";
}

/// A launcher has decided how many there are.
void take_launcher_ranks(const std::vector<Setting>& settings, RunConfig& config) {
  const auto launched = detect_launcher();
  if (launched && !is_given(settings, "scale.ranks")) config.scale.ranks = launched->size;
}

/// A run by time that is given steps, or the other way round, has one length.
void keep_one_length(const std::vector<Setting>& settings, RunConfig& config) {
  const bool by_steps = is_given(settings, "measure.steps");
  const bool by_precision = is_given(settings, "measure.until_percent");
  const bool by_time = is_given(settings, "measure.duration_s") || by_precision;
  if (by_time && !by_steps) config.measure.steps = 0;
  if (!by_steps || by_precision) return;
  config.measure.until_percent = {};
  config.measure.until_after_s = MeasureConfig{}.until_after_s;
}

}  // namespace

bool can_change_on_resume(const std::string& path) {
  return std::any_of(changeable.begin(), changeable.end(), [&](std::string_view one) {
    return one.ends_with('.') ? path.starts_with(one) : path == one;
  });
}

ResumePlan plan_resume(const ResumeRequest& request) {
  const OtherRun other = read_other(request.run);
  ResumePlan plan;
  const CheckpointPlace place = last_good_checkpoint(other.folder, request.step, plan.warnings);
  const CheckpointReader checkpoint(place.folder);
  checkpoint.expect_graph(other.workload.graph_hash);

  ProblemList problems;
  check_settings(request.settings, problems);
  problems.throw_if_any();
  plan.config = apply_settings(base_for(other, request.settings), request.settings, problems);
  keep_one_length(request.settings, plan.config);
  take_launcher_ranks(request.settings, plan.config);
  validate(plan.config, request.settings, problems);
  problems.throw_if_any();
  keep_batch(other, request.settings, plan.config, problems);
  check_steps_left(plan.config, checkpoint.state(), problems);
  problems.throw_if_any();
  plan.config.parent = ParentRun{other.start.run_id, fs::absolute(place.folder).string(),
                                 checkpoint.state().step, other.training};
  return plan;
}

void check_continues(const ParentRun& parent, const TrainingIdentity& mine) {
  ProblemList problems;
  for (const IdentityDifference& one : differences(parent.training, mine)) {
    problems.add(fmt::format("{} of this training is {}", one.name, told(one.b)),
                 fmt::format("{} has {}", parent.run_id, told(one.a)), hint_about(one.name));
  }
  problems.throw_if_any();
}

}  // namespace heteroperf
