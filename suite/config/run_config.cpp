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
#include <sstream>

#include "metrics/base/name_table.hpp"
#include "metrics/precision_goal.hpp"
#include "metrics/rate.hpp"
#include "results/text/number_text.hpp"
#include "runners/plan/layout_plan.hpp"
#include "suite/config/run_config_json.hpp"
#include "suite/program/catalog.hpp"

namespace heteroperf {
namespace {

/// NCCL moves what is in a GPU's memory alone.
void check_devices(const ScaleConfig& c, Precision precision, ProblemList& problems) {
  const std::vector<std::string>& names = c.device.names;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (std::find(names.begin(), names.begin() + i, names[i]) != names.begin() + i) continue;
    collect_problems(problems, [&] {
      const RankDevice device = read_device(names[i]);
      if (device.has_precision(to_string(precision))) return;
      problems.add(fmt::format("{} has no {}", device.name, to_string(precision)),
                   fmt::format("its precisions are {}", fmt::join(device.chip->precisions, ", ")),
                   "Use another --precision or another device");
    });
  }
  const bool only_gpus = std::ranges::count(names, "cuda") == std::ssize(names);
  if (c.transport != Transport::nccl || only_gpus) return;
  problems.add(fmt::format("--transport nccl does not go with --device {}", to_string(c.device)),
               "NCCL sums what is in the memory of GPUs",
               "Use --device cuda, or another transport");
}

/// A list of ways can be long: the part that is wrong is named.
void check_engine(const EngineConfig& c, ProblemList& problems) {
  collect_problems(problems, [&] { FallbackRules::parse(c.fallback); });
  if (c.products == automatic_products) return;
  collect_problems(problems, [&] { ProductChoices::parse(c.products); });
}

/// Every key that differs from its default, and every one the user gave a value.
std::vector<Setting> asked_for(const RunConfig& config, const std::vector<Setting>& settings) {
  std::vector<Setting> asked = changed_settings(config, base_of(config));
  for (const Setting& setting : settings) {
    const bool known = std::any_of(asked.begin(), asked.end(), [&](const Setting& change) {
      return change.path == setting.path;
    });
    if (!known) asked.push_back(setting);
  }
  return asked;
}

/// A key that the chosen workload never reads must not look as if it had done something.
void check_applicable(const RunConfig& config, const std::vector<Setting>& settings,
                      ProblemList& problems) {
  const std::vector<std::string> all = workload_names();
  // A suite has no one workload, and each of its workloads reads what it knows.
  if (std::find(all.begin(), all.end(), config.workload) == all.end()) return;
  for (const Setting& asked : asked_for(config, settings)) {
    const std::vector<std::string> having = workloads_with(asked.path);
    if (std::find(having.begin(), having.end(), config.workload) != having.end()) continue;
    problems.add(fmt::format("{} changes nothing in {}",
                             shown_value(settings, asked.path, asked.value), config.workload),
                 fmt::format("only {} can use it", fmt::join(having, " and ")), "Leave it out");
  }
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
                 ProblemList& problems) {
  constexpr const char* path = "measure.until_percent";
  if (config.measure.until_percent.value == 0) return;
  const std::string until =
      shown_value(settings, path, fmt::format("{}", config.measure.until_percent.value));
  if (config.workload.empty()) {
    problems.add(until + " is not usable",
                 "the suite has searches, whose throughput is of one model after another",
                 fmt::format("Name a workload: {}", fmt::join(workloads_with(path), " or ")));
  }
  // By time the precision only ends the phase earlier.
  if (config.measure.steps == 0) return;
  const std::string steps =
      shown_value(settings, "measure.steps", fmt::format("{}", config.measure.steps));
  problems.add(fmt::format("{} and {} exclude each other", until, steps),
               "a run ends after its steps or once its throughput is known well enough",
               "Leave one of them out");
}

constexpr const char* describe_it =
    "Give --cluster; `heteroperf probe -o me.json` describes this machine";

/// True where a cluster is named, or may be by a plan's file.
bool names_cluster(const RunConfig& config) {
  const bool has_file = !config.plan.file.empty() && !config.plan.is_searched();
  return has_file || !config.cluster.file.empty();
}

/// A training looks at its plan after warm-up and so many steps, and goes on by it or by another.
void check_adaptation(const RunConfig& config, const std::vector<Setting>& settings,
                      ProblemList& problems) {
  const AdaptConfig& adapt = config.adapt;
  const Setting* threshold = last_of(settings, "adapt.replan_threshold");
  if (adapt.every_steps == 0) {
    if (threshold != nullptr) {
      problems.add(shown(*threshold) + " changes nothing", "no plan is looked at again",
                   "Give --adapt N too, or leave it out");
    }
    return;
  }
  const std::string every =
      shown_value(settings, "adapt.every_steps", fmt::format("{}", adapt.every_steps));
  const std::vector<std::string> having = workloads_with("adapt.every_steps");
  if (config.workload.empty()) {
    problems.add(every + " is not usable", "the suite has searches, which have no plan",
                 fmt::format("Name a workload: {}", fmt::join(having, " or ")));
  }
  const bool is_read = std::find(having.begin(), having.end(), config.workload) != having.end();
  if (is_read && !names_cluster(config)) {
    problems.add(every + " has no planned times to compare with", "no cluster is named",
                 describe_it);
  }
  const std::uint64_t steps = config.measure.steps;
  const std::uint64_t warmup = warmup_steps_of_run(config.measure.warmup_steps, steps,
                                                   config.parent ? config.parent->step : 0);
  if (steps > 0 && warmup + adapt.every_steps >= steps) {
    problems.add(fmt::format("{} changes nothing in {}", every,
                             shown_value(settings, "measure.steps", fmt::format("{}", steps))),
                 fmt::format("after {} steps of warm-up and {} more no step is left", warmup,
                             adapt.every_steps),
                 "Use a smaller --adapt, or more --steps");
  }
  if (config.trace.empty()) return;
  problems.add(fmt::format("{} and {} exclude each other", every,
                           shown_value(settings, "trace", config.trace)),
               "a trace is of one plan", "Leave one of them out");
}

/// Layouts say the degrees of every component.
void check_layout(const RunConfig& config, const std::vector<Setting>& settings,
                  ProblemList& problems) {
  if (config.plan.layout.empty()) return;
  for (const Setting& asked : asked_for(config, settings)) {
    const std::string_view degrees[] = {"plan.pipeline", "plan.tensor", "plan.context", "plan.data",
                                        "plan.chunks"};
    if (std::ranges::find(degrees, asked.path) == std::end(degrees)) continue;
    problems.add(fmt::format("{} and {} exclude each other",
                             shown_value(settings, "plan.layout", config.plan.layout),
                             shown_value(settings, asked.path, asked.value)),
                 "layouts have degrees of their own", "Leave one of them out");
  }
  collect_problems(problems, [&] { parse_layouts(config.plan.layout); });
}

/// A plan says itself what these keys say.
void check_plan_alone(const RunConfig& config, const std::vector<Setting>& settings,
                      ProblemList& problems) {
  if (config.plan.file.empty()) return;
  for (const Setting& asked : asked_for(config, settings)) {
    // A plan that is searched has the samples per step that a batch says.
    const bool in_batch = asked.path == "batch.micro_batch" || asked.path == "batch.micro_batches";
    const bool said = asked.path.starts_with("plan.") || (in_batch && !config.plan.is_searched());
    if (!said || asked.path == "plan.file") continue;
    problems.add(fmt::format("{} and {} exclude each other",
                             shown_value(settings, "plan.file", config.plan.file),
                             shown_value(settings, asked.path, asked.value)),
                 "the plan has a value of its own", "Leave one of them out");
  }
}

void check_plan_options(const RunConfig& config, const std::vector<Setting>& settings,
                        ProblemList& problems) {
  const auto needs = [&](const char* path, const std::string& value, const char* what) {
    problems.add(shown_value(settings, path, value) + " changes nothing", "", what);
  };
  const bool cluster = names_cluster(config);
  if (config.plan.is_searched() && !cluster) {
    problems.add(shown_value(settings, "plan.file", config.plan.file) + " has nothing to plan for",
                 "no cluster is named", describe_it);
  }
  if (config.pace.dilation > 0 && !cluster) {
    needs("pace.dilation", fmt::format("{}", config.pace.dilation),
          "Name a --cluster of paced classes, or leave it out");
  }
  if (!config.pace.slow.device_class.empty()) {
    const std::string slow = to_string(config.pace.slow);
    if (!cluster) needs("pace.slow", slow, "Name a --cluster of paced classes, or leave it out");
    const std::uint64_t steps = config.measure.steps;
    if (steps > 0 && config.pace.slow.from_step >= steps) {
      problems.add(shown_value(settings, "pace.slow", slow) + " changes nothing",
                   fmt::format("the last of {} steps is step {}", steps, steps - 1),
                   "Use an earlier step, or more --steps");
    }
  }
  if (config.with_baselines && !cluster) {
    needs("with_baselines", "true", "Name a --cluster of several classes, or leave it out");
  }
  if (!config.trace.empty() && config.workload.empty()) {
    problems.add(shown_value(settings, "trace", config.trace) + " is not usable",
                 "it is the trace of one run", "Name a workload, or leave it out");
  }
}

/// One lost sign of life must not look like a lost rank.
void check_heartbeat(const CommConfig& c, ProblemList& problems) {
  if (c.heartbeat_s * 3 <= c.timeout_s) return;
  problems.add(fmt::format("comm.heartbeat_s = {} is too long for comm.timeout_s = {}",
                           c.heartbeat_s, c.timeout_s),
               "three heartbeats must fit the timeout");
}

/// Where the ranks are known this early.
void check_given_degrees(const RunConfig& config, ProblemList& problems) {
  const PlanConfig& plan = config.plan;
  if (config.scale.ranks < 1 || !plan.file.empty() || !plan.layout.empty()) return;
  check_degrees(config.plan, config.scale.ranks, problems);
}

}  // namespace

void check_degrees(const PlanConfig& plan, int ranks, ProblemList& problems) {
  if (plan.pipeline < 1 || plan.tensor < 1 || plan.context < 1 || plan.data < 0)
    return;  // told elsewhere
  const std::int64_t copy = plan.ranks_of_copy();
  const bool fits = plan.data == 0 ? ranks % copy == 0 : copy * plan.data == ranks;
  if (fits) return;
  const std::string degrees =
      fmt::format("pp {} x tp {}{}{}", plan.pipeline, plan.tensor,
                  plan.context == 1 ? "" : fmt::format(" x cp {}", plan.context),
                  plan.data == 0 ? "" : fmt::format(" x dp {}", plan.data));
  problems.add(fmt::format("{} does not fit {}", degrees, plural(ranks, "rank")),
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

const Setting* last_of(const std::vector<Setting>& settings, const std::string& path) {
  const auto place = std::find_if(settings.rbegin(), settings.rend(),
                                  [&](const Setting& setting) { return setting.path == path; });
  return place == settings.rend() ? nullptr : &*place;
}

std::string shown(const Setting& setting) {
  return setting.flag.empty() ? fmt::format("{} = '{}'", setting.path, setting.value)
                              : fmt::format("{} {}", setting.flag, setting.value);
}

std::string shown_value(const std::vector<Setting>& settings, const std::string& path,
                        const std::string& value) {
  const Setting* given = last_of(settings, path);
  return shown(given == nullptr ? Setting{path, value} : *given);
}

std::string to_string(const DeviceList& devices) {
  return fmt::format("{}", fmt::join(devices.names, ","));
}

std::string to_string(const Slowdown& slowdown) {
  if (slowdown.device_class.empty()) return "";
  return fmt::format("{}:{}:{}", slowdown.device_class, slowdown.from_step, slowdown.factor);
}

bool ScaleConfig::uses_gpus() const { return std::ranges::count(device.names, "cuda") > 0; }

std::vector<std::string> split(const std::string& text, char separator) {
  std::istringstream stream(text + separator);
  std::vector<std::string> parts;
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

void validate(const RunConfig& config, const std::vector<Setting>& settings,
              ProblemList& problems) {
  check_values(config, settings, "", problems);
  check_devices(config.scale, config.model.precision, problems);
  check_engine(config.engine, problems);
  check_heartbeat(config.comm, problems);
  check_one_length(config, settings, problems);
  check_until(config, settings, problems);
  check_adaptation(config, settings, problems);
  check_layout(config, settings, problems);
  check_plan_alone(config, settings, problems);
  check_plan_options(config, settings, problems);
  check_given_degrees(config, problems);
  check_applicable(config, settings, problems);
}

void validate(const CommConfig& comm, const std::vector<Setting>& settings, ProblemList& problems) {
  RunConfig config;
  config.comm = comm;
  check_values(config, settings, "comm.", problems);
  check_heartbeat(comm, problems);
}

}  // namespace heteroperf
