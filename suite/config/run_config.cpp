// Checks a configuration as far as that is possible without data, machine or plan: ranges, names,
// keys that exclude each other, and keys that would do nothing. Problems are collected, so that a
// user sees all of them at once, and each names the setting as it was typed.
//
// A key that does nothing is an error, because a benchmark whose option was silently ignored
// measures something else than its user believes. What counts as asked for is every key that
// differs from its default and every key that the user gave, even with its default value.
#include "suite/config/run_config.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <sstream>

#include "metrics/precision_goal.hpp"
#include "runners/schedule/generators/generator.hpp"
#include "suite/config/run_config_json.hpp"
#include "suite/program/catalog.hpp"

namespace heteroperf {
namespace {

/// Collects problems in the words of the user's own settings.
class Validation {
 public:
  Validation(const std::vector<Setting>& settings, ProblemList& problems)
      : settings_(settings), problems_(problems) {}

  /// Shows the value of `path` as the user gave it: the last word counts.
  std::string shown_value(const std::string& path, const std::string& value) const {
    Setting found{path, value};
    for (const Setting& setting : settings_) {
      if (setting.path == path) found = setting;
    }
    return shown(found);
  }

  void range(const char* path, double value, double low, double high) {
    if (value >= low && value <= high) return;
    problems_.add(shown_value(path, fmt::format("{}", value)) + " is out of range",
                  fmt::format("{} to {}", low, high));
  }

  void above_zero(const char* path, double value) {
    if (value > 0) return;
    problems_.add(shown_value(path, fmt::format("{}", value)) + " is out of range", "above 0");
  }

  /// `meant`: a name to suggest in place of the one that is nearest by its letters.
  void choice(const char* path, const std::string& value, const std::vector<std::string>& valid,
              const std::string& meant = "") {
    if (std::find(valid.begin(), valid.end(), value) != valid.end()) return;
    const std::string nearest = meant.empty() ? nearest_name(value, valid) : meant;
    problems_.add(shown_value(path, value) + " is not known",
                  fmt::format("one of {}", fmt::join(valid, " ")),
                  nearest.empty() ? "" : "Did you mean '" + nearest + "'?");
  }

 private:
  const std::vector<Setting>& settings_;
  ProblemList& problems_;
};

constexpr double many = 1e9;

// Limits lie far beyond any machine: they catch typing errors and overflows.
void check_scale(const RunConfig& c, Validation& check) {
  check.choice("scale.transport", c.scale.transport, {"threads", "mpi", "nccl"});
  for (const std::string& device : c.scale.devices()) {
    check.choice("scale.device", device, {"cpu", "cuda"}, device == "gpu" ? "cuda" : "");
  }
  check.choice("scale.bind", c.scale.bind, {"auto", "none"});
  check.range("scale.ranks", c.scale.ranks, 0, 1e6);
  check.range("scale.threads_per_rank", c.scale.threads_per_rank, 0, 4096);
  check.range("batch.micro_batch", double(c.batch.micro_batch), 0, 1e6);
  check.range("batch.micro_batches", double(c.batch.micro_batches), 0, 1e6);
}

/// NCCL moves what is in a GPU's memory alone.
void check_devices(const ScaleConfig& c, ProblemList& problems) {
  if (c.transport != "nccl" || c.uses_only_gpus()) return;
  problems.add(fmt::format("--transport nccl does not go with --device {}", c.device),
               "NCCL sums what is in the memory of GPUs",
               "Use --device cuda, or another transport");
}

void check_model(const RunConfig& c, Validation& check) {
  if (!c.workload.empty()) check.choice("workload", c.workload, workload_names());
  check.choice("model.precision", c.model.precision, {"fp32", "bf16", "fp64"});
  check.range("model.sequence_length", double(c.model.sequence_length), 0, 1e6);
}

void check_optimizer(const OptimizerConfig& c, Validation& check) {
  if (c.name) check.choice("optimizer.name", *c.name, {"sgd", "adamw"});
  if (c.schedule) {
    check.choice("optimizer.schedule", *c.schedule, {"constant", "linear", "cosine"});
  }
  if (c.learning_rate) check.above_zero("optimizer.learning_rate", *c.learning_rate);
  constexpr double unlimited = std::numeric_limits<double>::max();
  check.range("optimizer.weight_decay", c.weight_decay.value_or(0), 0, unlimited);
  check.range("optimizer.clip_norm", c.clip_norm.value_or(0), 0, unlimited);
  check.range("optimizer.warmup_steps", double(c.warmup_steps.value_or(0)), 0, many);
}

void check_lengths(const RunConfig& c, Validation& check) {
  check.range("measure.duration_s", c.measure.duration_s, 0.1, 30 * 86400.0);
  check.range("measure.steps", double(c.measure.steps), 0, many);
  check.range("measure.until_after_s", c.measure.until_after_s, 0, 30 * 86400.0);
  check.range("measure.warmup_steps", double(c.measure.warmup_steps), 1, many);
  check.range("measure.evaluation_samples", double(c.measure.evaluation_samples), 1, many);
  check.range("measure.peak_s", c.measure.peak_s, 0, 60);
  check.range("automl.group_ranks", c.automl.group_ranks, 1, 1e6);
  check.range("automl.first_rung_steps", double(c.automl.first_rung_steps), 1, many);
  check.range("automl.reduction", c.automl.reduction, 2, 100);
  check.range("automl.rungs", c.automl.rungs, 1, 20);
  check.range("automl.evaluation_samples", double(c.automl.evaluation_samples), 1, many);
}

/// The generators are the one list of schedules.
std::vector<std::string> schedule_names() {
  std::vector<std::string> names;
  for (const Generator& generator : generators()) names.emplace_back(generator.name);
  return names;
}

void check_plan_values(const RunConfig& c, Validation& check) {
  constexpr double most_degree = 1e6;
  check.range("plan.pipeline", c.plan.pipeline, 1, most_degree);
  check.range("plan.tensor", c.plan.tensor, 1, most_degree);
  check.range("plan.data", c.plan.data, 0, most_degree);
  check.range("plan.chunks", c.plan.chunks, 0, most_degree);
  check.choice("plan.schedule", c.plan.schedule, schedule_names());
  check.choice("plan.recompute", c.plan.recompute, {"none", "selective", "full"});
  check.range("plan.zero_stage", c.plan.zero_stage, 0, 1);
  check.range("pace.dilation", c.pace.dilation, 0, many);
}

void check_checkpoint(const CheckpointConfig& c, Validation& check) {
  check.range("checkpoint.every_steps", double(c.every_steps), 0, many);
  check.range("checkpoint.every_s", c.every_s, 0, 30 * 86400.0);
  check.range("checkpoint.keep", double(c.keep), 0, 1e6);
}

/// Every key that differs from its default, and every one the user gave a value.
std::vector<Setting> asked_for(const RunConfig& config, const std::vector<Setting>& settings) {
  std::vector<Setting> asked = changed_settings(config, base_of(config));
  for (const Setting& setting : settings) {
    const bool known = std::any_of(asked.begin(), asked.end(), [&](const Setting& other) {
      return other.path == setting.path;
    });
    if (!known) asked.push_back(setting);
  }
  return asked;
}

/// A key that the chosen workload never reads must not look as if it had done something.
void check_applicable(const RunConfig& config, const std::vector<Setting>& settings,
                      const Validation& check, ProblemList& problems) {
  const std::vector<std::string> all = workload_names();
  // A suite has no one workload, and each of its workloads reads what it knows.
  if (std::find(all.begin(), all.end(), config.workload) == all.end()) return;
  for (const Setting& asked : asked_for(config, settings)) {
    const std::vector<std::string> having = workloads_with(asked.path);
    if (std::find(having.begin(), having.end(), config.workload) != having.end()) continue;
    problems.add(fmt::format("{} changes nothing in {}", check.shown_value(asked.path, asked.value),
                             config.workload),
                 fmt::format("only {} can use it", fmt::join(having, " and ")), "Leave it out");
  }
}

/// The last of `settings` that changes `path`; null without one.
const Setting* last_of(const std::vector<Setting>& settings, const char* path) {
  const auto found = std::find_if(settings.rbegin(), settings.rend(),
                                  [&](const Setting& setting) { return setting.path == path; });
  return found == settings.rend() ? nullptr : &*found;
}

/// Two lengths exclude each other only where the user gave both.
void check_one_length(const RunConfig& config, const std::vector<Setting>& settings,
                      ProblemList& problems) {
  const Setting* steps = last_of(settings, "measure.steps");
  const Setting* duration = last_of(settings, "measure.duration_s");
  if (config.measure.steps == 0 || steps == nullptr || duration == nullptr) return;
  problems.add(fmt::format("{} and {} exclude each other", shown(*steps), shown(*duration)),
               "a run ends after its steps or after its time", "Leave one of them out");
}

/// A precision ends the measurement of one fixed model, by time.
void check_until(const RunConfig& config, const std::vector<Setting>& settings,
                 const Validation& check, ProblemList& problems) {
  constexpr const char* path = "measure.until_percent";
  constexpr double least = 0.1, most = 50;
  const double percent = config.measure.until_percent.value;
  const Setting* given = last_of(settings, path);
  // The key's own 0 is the default, and what a word that is no number leaves; as a flag a 0 asks
  // for the impossible.
  const bool zero_flag = given != nullptr && !given->flag.empty() && !given->value.empty() &&
                         given->value.find_first_not_of("-0.%") == std::string::npos;
  if (percent == 0 && !zero_flag) return;
  const std::string until = check.shown_value(path, fmt::format("{}", percent));
  if (percent < least || percent > most) {
    problems.add(until + " is out of range",
                 fmt::format("half of the throughput's 95 % interval: {} to {} %", least, most));
  }
  if (config.workload.empty()) {
    problems.add(until + " is not usable",
                 "the suite has searches, whose throughput is of one model after another",
                 fmt::format("Name a workload: {}", fmt::join(workloads_with(path), " or ")));
  }
  // By time the precision only ends the phase earlier.
  if (config.measure.steps == 0) return;
  const std::string steps =
      check.shown_value("measure.steps", fmt::format("{}", config.measure.steps));
  problems.add(fmt::format("{} and {} exclude each other", until, steps),
               "a run ends after its steps or once its throughput is known well enough",
               "Leave one of them out");
}

/// A plan says itself what these keys say.
void check_plan_alone(const RunConfig& config, const std::vector<Setting>& settings,
                      const Validation& check, ProblemList& problems) {
  if (config.plan.file.empty()) return;
  for (const Setting& asked : asked_for(config, settings)) {
    const bool said = asked.path.starts_with("plan.") || asked.path == "batch.micro_batch" ||
                      asked.path == "batch.micro_batches";
    if (!said || asked.path == "plan.file") continue;
    problems.add(fmt::format("{} and {} exclude each other",
                             check.shown_value("plan.file", config.plan.file),
                             check.shown_value(asked.path, asked.value)),
                 "the plan has a value of its own", "Leave one of them out");
  }
}

void check_plan_options(const RunConfig& config, const Validation& check, ProblemList& problems) {
  const auto needs = [&](const char* path, const std::string& value, const char* what) {
    problems.add(check.shown_value(path, value) + " changes nothing", "", what);
  };
  // A plan may name one.
  const bool cluster = !config.cluster.file.empty() || !config.plan.file.empty();
  if (config.pace.dilation > 0 && !cluster) {
    needs("pace.dilation", fmt::format("{}", config.pace.dilation),
          "Name a --cluster of paced classes, or leave it out");
  }
  if (config.with_baselines && !cluster) {
    needs("with_baselines", "true", "Name a --cluster of several classes, or leave it out");
  }
  if (!config.trace.empty() && config.workload.empty()) {
    problems.add(check.shown_value("trace", config.trace) + " is not usable",
                 "it is the trace of one run", "Name a workload, or leave it out");
  }
}

/// Where the ranks are known this early.
void check_given_degrees(const RunConfig& config, ProblemList& problems) {
  if (config.scale.ranks < 1 || !config.plan.file.empty()) return;
  check_degrees(config.plan, config.scale.ranks, problems);
}

}  // namespace

void check_degrees(const PlanConfig& plan, int ranks, ProblemList& problems) {
  if (plan.pipeline < 1 || plan.tensor < 1 || plan.data < 0) return;  // told elsewhere
  const long long copy = 1LL * plan.pipeline * plan.tensor;
  const bool fits = plan.data == 0 ? ranks % copy == 0 : copy * plan.data == ranks;
  if (fits) return;
  const std::string degrees = fmt::format("pp {} x tp {}{}", plan.pipeline, plan.tensor,
                                          plan.data == 0 ? "" : fmt::format(" x dp {}", plan.data));
  problems.add(fmt::format("{} does not fit {} rank{}", degrees, ranks, ranks == 1 ? "" : "s"),
               fmt::format("{} ranks {}", plan.data == 0 ? copy : copy * plan.data,
                           plan.data == 0 ? "make one replica" : "are asked for"),
               "Give other degrees or another --ranks");
}

RunConfig quick_config() {
  RunConfig config;
  config.quick = true;
  config.measure.duration_s = 12;
  config.measure.evaluation_samples = 128;
  config.measure.peak_s = 0.3;
  config.automl.first_rung_steps = 8;
  config.automl.evaluation_samples = 128;
  return config;
}

std::optional<PrecisionGoal> precision_goal(const MeasureConfig& config) {
  if (config.until_percent.value == 0 || config.replay_steps > 0) return std::nullopt;
  return PrecisionGoal{.fraction = config.until_percent.value / 100,
                       .fewest_s = config.until_after_s};
}

RunConfig base_of(const RunConfig& config) { return config.quick ? quick_config() : RunConfig{}; }

void add_set(const std::string& text, std::vector<Setting>& settings, ProblemList& problems) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    problems.add("--set " + text + " is not usable", "expected path.to.key=value");
    return;
  }
  settings.push_back({text.substr(0, equals), text.substr(equals + 1)});
}

std::string shown(const Setting& setting) {
  return setting.flag.empty() ? fmt::format("{} = '{}'", setting.path, setting.value)
                              : fmt::format("{} {}", setting.flag, setting.value);
}

std::vector<std::string> ScaleConfig::devices() const {
  std::vector<std::string> names;
  std::istringstream list(device + ',');
  for (std::string name; std::getline(list, name, ',');) names.push_back(name);
  return names;
}

bool ScaleConfig::uses_gpus() const {
  const std::vector<std::string> all = devices();
  return std::find(all.begin(), all.end(), "cuda") != all.end();
}

bool ScaleConfig::uses_only_gpus() const {
  const std::vector<std::string> all = devices();
  return std::all_of(all.begin(), all.end(), [](const std::string& d) { return d == "cuda"; });
}

void validate(const RunConfig& config, const std::vector<Setting>& settings,
              ProblemList& problems) {
  Validation check(settings, problems);
  check_model(config, check);
  check_scale(config, check);
  check_devices(config.scale, problems);
  check_optimizer(config.optimizer, check);
  check_lengths(config, check);
  check_plan_values(config, check);
  check_checkpoint(config.checkpoint, check);
  validate(config.comm, settings, problems);
  check_one_length(config, settings, problems);
  check_until(config, settings, check, problems);
  check_plan_alone(config, settings, check, problems);
  check_plan_options(config, check, problems);
  check_given_degrees(config, problems);
  check_applicable(config, settings, check, problems);
}

void validate(const CommConfig& c, const std::vector<Setting>& settings, ProblemList& problems) {
  Validation check(settings, problems);
  check.range("comm.timeout_s", c.timeout_s, 1, 86400);
  check.range("comm.heartbeat_s", c.heartbeat_s, 0.01, 60);
  check.range("comm.join_timeout_s", c.join_timeout_s, 1, 86400);
  check.choice("comm.host_path", c.host_path, {"messages", "shared_memory", "single_copy"});
  // One lost sign of life must not look like a lost rank.
  if (c.heartbeat_s * 3 <= c.timeout_s) return;
  problems.add(fmt::format("comm.heartbeat_s = {} is too long for comm.timeout_s = {}",
                           c.heartbeat_s, c.timeout_s),
               "three heartbeats must fit the timeout");
}

void validate(const RunConfig& config) {
  ProblemList problems;
  validate(config, {}, problems);
  problems.throw_if_any();
}

}  // namespace heteroperf
