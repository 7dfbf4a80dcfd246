#pragma once

#include <CLI/App.hpp>

#include <span>
#include <string>
#include <vector>

namespace heteroperf {

/// The command line as the program got it, kept by main().
const std::vector<std::string>& original_argv();
void keep_argv(int argc, char** argv);

/// Lets variables stand for the long options of `command`: HETEROPERF_MICRO_BATCH for --micro-batch
/// of `run` and for options that all verbs share, HETEROPERF_GATE_THRESHOLD for another verb's own,
/// so that one verb's environment never breaks another. The command line wins over them.
void mirror_in_environment(CLI::App& command);

/// The sentence of a verb's --help that says so.
std::string environment_text(const CLI::App& command);

/// "NAME=value" of every variable that an option of `command` takes its value from or would.
std::vector<std::string> environment_of(const CLI::App& command);

/// One warning per HETEROPERF_* variable that is neither an option of any verb of `app` nor read
/// by the program otherwise; names the nearest one that is.
std::vector<std::string> environment_warnings(const CLI::App& app);

/// A variable that is no option.
struct ReadVariable {
  const char* name;
  const char* meaning;
};
std::span<const ReadVariable> read_variables();

/// True where a variable switches a flag on: it is set, and not to 0, false, off or no.
bool environment_flag(const char* name);

}  // namespace heteroperf
