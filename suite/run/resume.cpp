// Plans a run that continues another one. It begins with the other run's journal: its
// configuration, what it trains, and how many steps it did. Then the last good checkpoint is
// chosen. The new settings are laid over the old configuration, after those keys that they replace
// are cleared; a new degree of parallelism, for example, also lets go of the old plan's file.
//
// A *training identity* (graph, data, precision, seed, optimizer, samples per step) must not
// change, or the curve would have a kink that no reader can see. Everything else may. Samples per
// step stay because the micro-batches follow the new number of replicas.
//
// A training whose learning rate decays has a last step by its nature and cannot be made longer;
// the refusal names the command that starts a longer one.
#include "suite/run/resume.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "results/record/run_folder.hpp"
#include "runners/comm/world.hpp"
#include "runners/engine/checkpoint/checkpoint.hpp"
#include "runners/plan/layout_plan.hpp"
#include "suite/config/reproduce.hpp"
#include "suite/config/run_config_json.hpp"
#include "suite/config/training_identity.hpp"

namespace heteroperf {
namespace {

namespace fs = std::filesystem;

/// Keys, or beginnings of keys, that leave the training as it is. Data may have moved: what they
/// are is checked by their fingerprint.
constexpr std::array<std::string_view, 13> changeable{
    "scale.", "batch.",      "plan.",       "cluster.", "pace.",     "adapt.", "measure.",
    "comm.",  "checkpoint.", "data.source", "out",      "rank_logs", "trace"};

/// The facts that the journal of the other run tells.
struct OtherRun {
  fs::path folder;
  Journal journal;
  StartEvent start;
  RunConfig config;
  WorkloadEvent workload;
  TrainingIdentity training;
  std::uint64_t steps_done = 0;
};

OtherRun read_other(const fs::path& path) {
  const RunFiles files = open_run_folder(path);
  if (fs::exists(files.suite())) {
    throw UserError(
        path.string() + " is a suite", "one run can go on, not several",
        fmt::format("Give the folder of one workload: {}", (files.folder / "llm").string()));
  }
  Journal journal = read_journal(files.journal().string());
  const auto* config = journal.last<ConfigEvent>();
  const auto* workload = journal.first<WorkloadEvent>();
  if (config == nullptr || workload == nullptr) {
    throw UserError("the run in " + files.folder.string() + " cannot go on",
                    "it ended before its journal said what is trained", "Start it again.");
  }
  const TrainingIdentity training = training_identity(*workload);
  const auto* last = journal.last<StepEvent>();
  const std::uint64_t steps_done = last == nullptr ? 0 : last->n + 1;
  OtherRun run{
      files.folder, {},        *journal.first<StartEvent>(), repeated_config(journal), *workload,
      training,     steps_done};
  run.journal = std::move(journal);
  return run;
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
RunConfig base_for(const OtherRun& run, const std::vector<Setting>& settings) {
  RunConfig base = run.config;
  base.out.clear();
  base.trace.clear();
  const auto given = [&](const char* path) { return is_given(settings, path); };
  const bool degrees =
      given("plan.pipeline") || given("plan.tensor") || given("plan.context") || given("plan.data");
  const bool ranks = given("scale.ranks"), file = given("plan.file");
  if (file) base.batch = {};
  // A plan file fixes all degrees, so new degrees or ranks cannot be mixed with it.
  if (file || (!base.plan.file.empty() && (degrees || ranks))) base.plan = {};
  // The replicas follow from the ranks and the other degrees.
  if (degrees || ranks) base.plan.data = 0;
  if (!ranks && (file || given("plan.data") || given("cluster.file"))) base.scale.ranks = 0;
  // The plan as it ran, wherever its file has gone.
  const fs::path stored = RunFiles{run.folder}.plan();
  if (!base.plan.file.empty() && fs::exists(stored)) base.plan.file = fs::absolute(stored).string();
  return base;
}

/// Replicas of an even plan that share the samples of a micro-batch; 0: not known here.
std::int64_t replicas_of(const RunConfig& config) {
  const PlanConfig& plan = config.plan;
  if (!plan.layout.empty()) return parse_layouts(plan.layout).most_replicas();
  return plan.data > 0 ? plan.data : config.scale.ranks / plan.ranks_of_copy();
}

/// With other replicas, as many samples per step as before. A plan's file says its own.
void keep_batch(const OtherRun& run, const std::vector<Setting>& settings, RunConfig& config,
                ProblemList& problems) {
  const std::int64_t replicas = replicas_of(config);
  const bool settled = is_given(settings, "batch.micro_batches") || !config.plan.file.empty();
  if (settled || replicas < 1) return;
  const auto samples = static_cast<std::int64_t>(*run.workload.samples_per_step);
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

/// Its learning rate falls to a last step: the length belongs to what is trained.
bool decays(const RunConfig& config) {
  return config.measure.steps > 0 &&
         config.optimizer.schedule.value_or(LearningRateSchedule::constant) !=
             LearningRateSchedule::constant;
}

/// The command line that repeats a run and leaves checkpoints, with another number of steps; 0: its
/// own length.
std::string started_again(const OtherRun& run, std::uint64_t steps) {
  const std::string flag = " --steps ";
  std::string line = run.start.reproduce;
  const std::size_t at = line.find(flag);
  if (steps > 0 && at != std::string::npos) {
    const std::size_t begin = at + flag.size();
    line.replace(begin, std::min(line.find(' ', begin), line.size()) - begin,
                 std::to_string(steps));
  }
  for (const char* key : {" --set checkpoint.every_s=30", " --set checkpoint.at_end=true"}) {
    if (line.find(key) == std::string::npos) line += key;
  }
  return line;
}

/// A training whose rate has decayed cannot go on. `wanted`: a length that the user asks for, else
/// 0.
void refuse_finished(const OtherRun& run, std::uint64_t wanted, std::uint64_t done) {
  const std::uint64_t all = run.config.measure.steps;
  if (!decays(run.config) || done < all) return;
  throw UserError(fmt::format("all {} steps of {} are done", all, run.start.run_id),
                  "its learning rate has decayed to the last of them",
                  fmt::format("Start a longer training: `{}`",
                              started_again(run, wanted > all ? wanted : 2 * all)));
}

/// A length that the training cannot have. `asked`: what the user gave, as a text; empty: nothing.
void check_length(const OtherRun& run, const RunConfig& config, const std::string& asked,
                  std::uint64_t done) {
  const std::uint64_t all = run.config.measure.steps;
  refuse_finished(run, config.measure.steps, done);
  if (decays(run.config) && !asked.empty() && config.measure.steps != all) {
    throw UserError(asked + " is not possible here",
                    fmt::format("the learning rate decays to step {}", all),
                    fmt::format("Go on with the {} steps that are left: `heteroperf resume {}`",
                                all - done, shell_quoted(run.folder.string())));
  }
  if (config.measure.steps == 0 || config.measure.steps > done) return;
  throw UserError(
      fmt::format("no step is left of {}", config.measure.steps),
      fmt::format("the checkpoint has {} done", done),
      fmt::format("--steps counts the whole training: `heteroperf resume {} --steps {}`",
                  shell_quoted(run.folder.string()), 2 * done));
}

/// Runs that never saved one say how they do.
void require_checkpoints(const OtherRun& run) {
  if (!list_checkpoints(run.folder).empty()) return;
  refuse_finished(run, 0, run.steps_done);
  throw UserError(run.folder.string() + " has no checkpoint",
                  run.config.checkpoint.any() ? "it ended before it saved its first one"
                                              : "it was not told to save any",
                  fmt::format("Start it again with them: `{}`", started_again(run, 0)));
}

std::string told(const std::string& value) { return value.empty() ? "nothing" : value; }

/// The setting of a length that came last, as it was given; empty without one.
std::string asked_length(const std::vector<Setting>& settings) {
  std::string asked;
  for (const Setting& setting : settings) {
    const bool length = setting.path == "measure.steps" || setting.path == "measure.duration_s" ||
                        setting.path == "measure.until_percent";
    if (length) asked = shown(setting);
  }
  return asked;
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
  return std::any_of(changeable.begin(), changeable.end(), [&](std::string_view key) {
    return key.ends_with('.') ? path.starts_with(key) : path == key;
  });
}

ResumePlan plan_resume(const ResumeRequest& request) {
  const OtherRun run = read_other(request.run);
  ResumePlan plan;
  // Checked first: without a checkpoint no setting can help.
  require_checkpoints(run);
  const CheckpointPlace place = last_good_checkpoint(run.folder, request.step, plan.warnings);
  const CheckpointReader checkpoint(place.folder);
  // A folder can have been copied from elsewhere.
  checkpoint.expect_graph(run.workload.graph_hash);

  ProblemList problems;
  check_settings(request.settings, problems);
  problems.throw_if_any();
  plan.config = apply_settings(base_for(run, request.settings), request.settings, problems);
  keep_one_length(request.settings, plan.config);
  // A launcher has decided how many there are.
  const auto launched = detect_launcher();
  if (launched && !is_given(request.settings, "scale.ranks"))
    plan.config.scale.ranks = launched->size;
  validate(plan.config, request.settings, problems);
  collect_problems(
      problems, [&] { add_changed_chips(run.journal, plan.config.scale.device.names, problems); });
  problems.throw_if_any();
  check_length(run, plan.config, asked_length(request.settings), checkpoint.state().step);
  keep_batch(run, request.settings, plan.config, problems);
  problems.throw_if_any();
  // Without links on the way: `latest` points to the new run before its ranks read this.
  plan.config.parent = ParentRun{run.start.run_id, fs::canonical(place.folder).string(),
                                 checkpoint.state().step, run.training};
  return plan;
}

void check_continues(const ParentRun& parent, const TrainingIdentity& identity) {
  ProblemList problems;
  for (const IdentityDifference& difference : differences(parent.training, identity)) {
    problems.add(fmt::format("{} of this training is {}", difference.name, told(difference.b)),
                 fmt::format("{} has {}", parent.run_id, told(difference.a)));
  }
  problems.throw_if_any();
}

}  // namespace heteroperf
