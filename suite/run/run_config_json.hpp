#pragma once

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <utility>
#include <vector>

#include "suite/run/run_config.hpp"

namespace heteroperf {

/// One change to the tree: dotted path and value text ("scale.ranks", "4").
using Setting = std::pair<std::string, std::string>;

/// Canonical text of the whole tree, keys in the struct's order, with _format and _version.
std::string to_json_text(const RunConfig& config);

/// Parses what to_json_text wrote. Throws UserError naming every unknown key (with the nearest
/// valid one), wrong type and wrong format.
RunConfig run_config_from_json_text(const std::string& text);

/// Applies the settings in order. A value is read by the type of the default at its path. Throws
/// UserError with every unknown path and every value of the wrong type at once.
RunConfig apply_settings(const RunConfig& base, const std::vector<Setting>& settings);

}  // namespace heteroperf
