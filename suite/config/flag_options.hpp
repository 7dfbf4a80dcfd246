#pragma once

#include <CLI/App.hpp>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "metrics/base/error.hpp"
#include "suite/config/run_config_json.hpp"

namespace heteroperf {

/// Declares an option whose text `parse` turns into `value` while the command line is read. What
/// `parse` throws ends the program before the verb begins.
template <class Value, class Parse>
CLI::Option* add_parsed_option(CLI::App& command, const std::string& flag, Value& value,
                               Parse parse, const std::string& help) {
  const auto take = [&value, parse](const std::string& text) { value = parse(text); };
  return command.add_option_function<std::string>(flag, take, help);
}

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
