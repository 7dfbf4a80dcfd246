#pragma once

#include <CLI/App.hpp>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "metrics/base/error.hpp"
#include "suite/config/run_config.hpp"

namespace heteroperf {

struct ConfigKey;

/// The flags of `run` that a verb takes, and what the user gave of them.
class FlagOptions {
 public:
  /// Declares those whose configuration key `wanted` accepts.
  void declare(CLI::App& command, const std::function<bool(const std::string& path)>& wanted);
  /// Returns what was given, flag by flag; adds numbers that are not above 0 where they must be.
  std::vector<Setting> settings(ProblemList& problems) const;

 private:
  std::vector<std::pair<const ConfigKey*, CLI::Option*>> flags_;
};

}  // namespace heteroperf
