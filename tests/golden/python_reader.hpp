#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tests/golden/command.hpp"

namespace heteroperf::testing {

/// A Python that can import all of these modules: $PARSERS_PYTHON, python3, or the system's.
/// Nothing where none can: such a test is skipped and says so.
std::optional<std::string> python_with(const std::vector<std::string>& modules);

/// Runs a script of tests/golden/parsers and returns what it prints; fails the test where it does.
std::string read_with(const std::string& python, const std::string& script,
                      const std::vector<std::string>& arguments);

}  // namespace heteroperf::testing
