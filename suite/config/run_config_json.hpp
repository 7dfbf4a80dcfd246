#pragma once

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <vector>

#include "suite/config/run_config.hpp"

namespace heteroperf {

/// One key of the tree, for people.
struct ConfigKey {
  std::string path, default_text, meaning;
};
/// Every key that --set takes, in the tree's order.
std::vector<ConfigKey> config_keys();
/// A line for each of those that begin so, for --help.
std::string config_keys_text(const std::string& prefix = "");
/// The workloads that read the key.
std::vector<std::string> workloads_with(const std::string& path);

/// The keys whose values differ, with `config`'s values; `quick`, `out` and `workload` are no part
/// of it. apply_settings reads every value back.
std::vector<Setting> changed_settings(const RunConfig& config, const RunConfig& from);

/// Canonical text of the tree, keys in the struct's order, with _format and _version. Keys without
/// a value are left out, and so are those that mean nothing to the configuration's workload or,
/// of steps and duration, its length.
std::string to_json_text(const RunConfig& config);

/// Parses what to_json_text wrote. Throws UserError naming every unknown key (with the nearest
/// valid one), wrong type and wrong format.
RunConfig run_config_from_json_text(const std::string& text);

/// Applies the settings in order. A value is read by the type of the default at its path. Adds
/// every unknown path and every value of the wrong type to `problems`; the key keeps its value
/// then.
RunConfig apply_settings(const RunConfig& base, const std::vector<Setting>& settings,
                         ProblemList& problems);
/// Throws UserError with all of them.
RunConfig apply_settings(const RunConfig& base, const std::vector<Setting>& settings);

/// Makes the configuration of verbs that have the keys of `comm.*` alone: `flags`, then `sets` as
/// --set has them.
CommConfig comm_config_of(std::vector<Setting> flags, const std::vector<std::string>& sets,
                          ProblemList& problems);

}  // namespace heteroperf
