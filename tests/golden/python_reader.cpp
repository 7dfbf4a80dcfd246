#include "tests/golden/python_reader.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

namespace heteroperf::testing {

std::optional<std::string> python_with(const std::vector<std::string>& modules) {
  std::string imports = "import sys";
  for (const std::string& name : modules) imports += "; import " + name;
  const char* own = std::getenv("PARSERS_PYTHON");
  for (const std::string& python : {std::string(own == nullptr ? "" : own), std::string("python3"),
                                    std::string("/usr/bin/python3")}) {
    if (python.empty()) continue;
    if (Command({python, "-c", imports}, ".").finish().exit_code == 0) return python;
  }
  return std::nullopt;
}

std::string read_with(const std::string& python, const std::string& script,
                      const std::vector<std::string>& arguments) {
  std::vector<std::string> words{python, HETEROPERF_PARSERS "/" + script};
  words.insert(words.end(), arguments.begin(), arguments.end());
  const CommandResult result = Command(words, ".").finish();
  EXPECT_EQ(result.exit_code, 0) << script << '\n' << result.err;
  return result.out;
}

}  // namespace heteroperf::testing
