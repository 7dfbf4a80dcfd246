#pragma once

#include <CLI/App.hpp>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "metrics/base/error.hpp"
#include "suite/config/run_config_json.hpp"

namespace heteroperf {

/// The flags of configuration keys that a verb takes, and what the user gave of them.
class FlagOptions {
 public:
  /// Declares those of `run`, or of another verb, whose configuration key `wanted` accepts.
  void declare(CLI::App& command, const std::function<bool(const std::string& path)>& wanted,
               std::string ConfigKey::*flag_of = &ConfigKey::flag);
  /// Returns what was given, flag by flag; adds numbers that are not above 0 where they must be.
  std::vector<Setting> settings(ProblemList& problems) const;

 private:
  std::vector<std::pair<const ConfigKey*, CLI::Option*>> flags_;
};

}  // namespace heteroperf
