// Writes a command line from a configuration. Values that another machine would choose otherwise
// (ranks, threads, size, length) are always spelled out; of the rest only those that differ from
// their defaults, so that the line stays readable. Keys that have a flag are written as flags,
// others with --set. A foreign launcher's line leaves ranks and transport to the launcher. Folders
// and files of output are never part of it: a repeated run needs its own.
#include "suite/config/reproduce.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "metrics/base/name_table.hpp"
#include "suite/config/run_config_json.hpp"

namespace heteroperf {
namespace {

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// Settings that another machine would choose otherwise.
std::vector<Setting> spelled_out(const RunConfig& config, bool launched) {
  std::vector<Setting> settings;
  if (!launched) settings.push_back({"scale.ranks", fmt::format("{}", config.scale.ranks)});
  settings.push_back({"scale.threads_per_rank", fmt::format("{}", config.scale.threads_per_rank)});
  if (!launched) settings.push_back({"scale.transport", to_string(config.scale.transport)});
  if (contains(workloads_with("model.size"), config.workload)) {
    settings.push_back({"model.size", config.model.size});
  }
  if (contains(workloads_with("model.name"), config.workload)) {
    settings.push_back({"model.name", config.model.name});
  }
  if (config.measure.steps > 0) {
    settings.push_back({"measure.steps", fmt::format("{}", config.measure.steps)});
  } else {
    settings.push_back({"measure.duration_s", fmt::format("{}", config.measure.duration_s)});
  }
  return settings;
}

/// Keys that `spelled_out` has or leaves out on purpose.
const std::vector<std::string> settled_keys{
    "scale.ranks", "scale.threads_per_rank", "scale.transport",   "model.size",
    "model.name",  "measure.steps",          "measure.duration_s"};

std::string as_words(const Setting& setting) {
  for (const ConfigKey& key : config_keys()) {
    if (setting.path != key.path || key.flag.empty()) continue;
    const bool is_switch = key.value_name.empty();
    return " " + key.flag + (is_switch ? "" : " " + shell_quoted(setting.value));
  }
  return " --set " + shell_quoted(setting.path + "=" + setting.value);
}

std::string words_of(const RunConfig& config, bool launched) {
  std::string words = " run " + config.workload;
  if (config.quick) words += " --quick";
  for (const Setting& setting : spelled_out(config, launched)) words += as_words(setting);
  for (const Setting& setting : changed_settings(config, base_of(config))) {
    // A key that the workload never reads would be refused when the line is run.
    const bool read = contains(workloads_with(setting.path), config.workload);
    if (read && !contains(settled_keys, setting.path)) words += as_words(setting);
  }
  return words;
}

}  // namespace

std::string shell_quoted(const std::string& word) {
  constexpr const char* plain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=.,:/@%";
  if (!word.empty() && word.find_first_not_of(plain) == std::string::npos) return word;
  std::string quoted = "'";
  // A quote cannot stand inside single quotes: it closes them, stands escaped, and opens them
  // again.
  for (char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::string full_run_command(const RunConfig& quick, const std::string& program,
                             double duration_s) {
  std::string command = shell_quoted(program) + " run";
  if (!quick.workload.empty()) command += ' ' + quick.workload;
  for (const Setting& setting : changed_settings(quick, base_of(quick))) {
    const bool length = setting.path == "measure.steps" || setting.path == "measure.duration_s";
    if (!length) command += as_words(setting);
  }
  return command + fmt::format(" --duration {:g}", duration_s);
}

std::string run_words(const RunConfig& config) { return words_of(config, false); }

std::string reproduce_command(const RunConfig& config, const std::string& launcher) {
  const bool launched = !launcher.empty();
  const std::string before =
      launched ? fmt::format("{} -n {} ", launcher, config.scale.ranks) : std::string();
  return before + "heteroperf" + words_of(config, launched);
}

}  // namespace heteroperf
