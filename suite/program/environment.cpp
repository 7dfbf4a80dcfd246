// Options can be given as variables, which containers and job scripts do more easily than words.
// Each long option of a verb gets a name: HETEROPERF_ and the option in capitals for `run` and for
// options that all verbs share, with the verb's name in between for others. The library that parses
// the command line reads them.
//
// A misspelled variable would do nothing without a word. So every HETEROPERF_ variable that is set
// is held against the names of all options of all verbs and those that other parts of the program
// read, and an unknown one is warned of with the nearest name.
#include "suite/program/environment.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <string_view>

#include "metrics/base/error.hpp"

namespace heteroperf {
namespace {

constexpr std::string_view prefix = "HETEROPERF_";
/// Read elsewhere: by the module loader, the launcher, a run in lockstep and the tests.
constexpr ReadVariable variables[] = {
    {"HETEROPERF_MODULE_PATH", "folder of the engine's and the transports' modules"},
    {"HETEROPERF_LAUNCHED", "set for ranks that this program started"},
    {"HETEROPERF_PARENT", "process that a run of a sweep ends with"},
    {"HETEROPERF_SWEEP_RUN", "number of a run in the sweep that starts it"},
    {"HETEROPERF_TURNS", "pipes of a run that a gate moves in lockstep"},
    {"HETEROPERF_SHARED", "folder of the data that tests read"}};

std::string in_capitals(const std::string& words) {
  std::string name;
  for (const char c : words) {
    name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return name;
}

/// The part of a verb's own variables before the option's name. Those of `run` have none.
std::string prefix_of(const CLI::App& command) {
  std::string text(prefix);
  return command.get_name() == "run" ? text : text + in_capitals(command.get_name()) + "_";
}

std::string variable_of(const CLI::App& command, const CLI::Option& option) {
  const std::vector<std::string>& names = option.get_lnames();
  // Options that print and end would make every command do so.
  if (names.empty() || names.front() == "help" || names.front() == "version") return {};
  // A verb declares its options in the library's own group; all others are common.
  const bool is_common = option.get_group() != "Options";
  return (is_common ? std::string(prefix) : prefix_of(command)) + in_capitals(names.front());
}

std::vector<std::string> known_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const ReadVariable& variable : variables) names.emplace_back(variable.name);
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    for (const CLI::Option* option : command->get_options()) {
      const std::string name = variable_of(*command, *option);
      if (!name.empty()) names.push_back(name);
    }
  }
  return names;
}

std::vector<std::string> set_names() {
  std::vector<std::string> names;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view setting(*entry);
    if (setting.starts_with(prefix)) names.emplace_back(setting.substr(0, setting.find('=')));
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> kept_argv;

}  // namespace

const std::vector<std::string>& original_argv() { return kept_argv; }
void keep_argv(int argc, char** argv) { kept_argv.assign(argv, argv + argc); }

void mirror_in_environment(CLI::App& command) {
  for (CLI::Option* option : command.get_options([](const CLI::Option*) { return true; })) {
    const std::string name = variable_of(command, *option);
    if (!name.empty()) option->envname(name);
  }
}

std::string environment_text(const CLI::App& command) {
  return fmt::format(
      "In the environment {}NAME gives --name{}.\n", prefix_of(command),
      command.get_name() == "run" ? "" : fmt::format(", and {}NAME a common option", prefix));
}

std::vector<std::string> environment_of(const CLI::App& command) {
  std::vector<std::string> settings;
  for (const CLI::Option* option : command.get_options()) {
    const std::string name = variable_of(command, *option);
    const char* value = name.empty() ? nullptr : std::getenv(name.c_str());
    if (value != nullptr) settings.push_back(name + "=" + value);
  }
  return settings;
}

std::vector<std::string> environment_warnings(const CLI::App& app) {
  const std::vector<std::string> known = known_names(app);
  std::vector<std::string> bare, warnings;
  for (const std::string& name : known) bare.push_back(name.substr(prefix.size()));
  for (const std::string& name : set_names()) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    const std::string nearest = nearest_name(name.substr(prefix.size()), bare);
    const Problem problem{
        name + " in the environment changes nothing", "no option has this name",
        nearest.empty() ? "Unset it." : fmt::format("Did you mean '{}{}'?", prefix, nearest)};
    warnings.push_back(problem.text());
  }
  return warnings;
}

std::span<const ReadVariable> read_variables() { return variables; }

bool environment_flag(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr) return false;
  constexpr std::array<std::string_view, 5> off{"", "0", "false", "off", "no"};
  return std::find(off.begin(), off.end(), value) == off.end();
}

}  // namespace heteroperf
