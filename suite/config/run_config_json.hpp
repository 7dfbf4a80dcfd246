#pragma once

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <vector>

#include "suite/config/run_config.hpp"

namespace heteroperf {

struct Journal;

/// One key of the tree, as flags, help pages, sweeps and the README show it.
struct ConfigKey {
  std::string path;
  std::string flag;           ///< an option of `run`, "--ranks"; empty: --set alone
  std::string comm_flag;      ///< an option of `comm`, "--timeout"
  std::string value_name;     ///< stands behind the flag: "N"; empty: the flag is a switch
  std::string least_of_flag;  ///< why the flag refuses 0: "at least 1"; empty: it does not
  std::string values;         ///< "0 to 60 s", "fp32, bf16, fp64"
  std::string default_text, help;
  bool joins = false;  ///< the flag may be given several times
};
/// Every key that --set takes, in the tree's order.
const std::vector<ConfigKey>& config_keys();
/// A line for each of those that begin so, for --help.
std::string config_keys_text(const std::string& prefix = "");
/// Adds every value of a key that begins so and is out of its range, or no name of its table.
void check_values(const RunConfig& config, const std::vector<Setting>& settings,
                  const std::string& prefix, ProblemList& problems);
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
/// The configuration with which to repeat a run or go on with it: the one that its journal holds,
/// with the ways of products that the run chose. Who has not said so took LibTorch's. The journal
/// has a `config` line.
RunConfig repeated_config(const Journal& journal);

/// Applies the settings in order. A value is read by the type of the default at its path. Adds
/// every unknown path and every value of the wrong type to `problems`; the key keeps its value
/// then.
RunConfig apply_settings(const RunConfig& base, const std::vector<Setting>& settings,
                         ProblemList& problems);

/// Reads the --transport of verbs that have no other key of `scale.*`; nothing where it is empty.
std::optional<Transport> transport_named(const std::string& text, ProblemList& problems);

/// Makes the configuration of verbs that have the keys of `comm.*` alone: `flags`, then `sets` as
/// --set has them.
CommConfig comm_config_of(std::vector<Setting> flags, const std::vector<std::string>& sets,
                          ProblemList& problems);

}  // namespace heteroperf
