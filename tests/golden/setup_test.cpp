// What scripts/setup.sh says while it waits.
#include <gtest/gtest.h>

#include <sstream>

#include "tests/golden/command.hpp"

namespace heteroperf::testing {
namespace {

CommandResult in_setup(const std::string& commands, const ScratchFolder& folder) {
  return Command(
             {"/bin/bash", "-c", "source " HETEROPERF_CHECKOUT "/scripts/setup.sh; " + commands},
             folder.path())
      .finish();
}

TEST(Setup, ABuildTellsStepsAndWhatIsLeftByTheirCosts) {
  const ScratchFolder folder;
  folder.write("a/cheap.cpp", "int a;\n");
  folder.write("a/dear_json.cpp", std::string(6000, '/') + "\n");
  folder.write("build/a/CMakeFiles/a.dir/Unity/unity_0_cxx.cxx",
               "#include \"" + (folder / "a/cheap.cpp") + "\"\n#include \"" +
                   (folder / "a/dear_json.cpp") + "\"\n");
  folder.write("dry",
               "[1/4] Building CXX object a/CMakeFiles/a.dir/cheap.cpp.o\n"
               "[2/4] Building CXX object a/CMakeFiles/a.dir/dear_json.cpp.o\n"
               "[3/4] Building CXX object a/CMakeFiles/a.dir/Unity/unity_0_cxx.cxx.o\n"
               "[4/4] Linking CXX static library a/liba.a\n");
  const CommandResult costs =
      in_setup("awk -v root=. -v folder=build \"$STEP_COSTS\" dry | tee log.steps", folder);
  std::istringstream rows(costs.out);
  std::vector<double> cost(4, 0);
  for (double& one : cost) {
    std::string object;
    rows >> one >> object;
  }
  EXPECT_GT(cost[1], 2 * cost[0]) << costs.out << costs.err;
  EXPECT_GT(cost[2], cost[1]) << "a unity file has the text of all";
  EXPECT_LT(cost[2], cost[0] + cost[1]) << "and its headers once";
  EXPECT_GT(cost[0], cost[3]);
  EXPECT_GT(cost[3], 0);
  folder.write("log",
               "[1/4] Building CXX object a/CMakeFiles/a.dir/cheap.cpp.o\n"
               "[2/4] Building CXX object a/CMakeFiles/a.dir/dear_json.cpp.o\n");
  const CommandResult told = in_setup("build_progress log 600", folder);
  EXPECT_EQ(told.out.rfind("2 of 4 steps, about ", 0), 0u) << told.out;
  EXPECT_NE(told.out.find("(dear_json.cpp.o)"), std::string::npos) << told.out;
}

TEST(Setup, AFailureIsPassedOnWithTheEndOfItsLog) {
  const ScratchFolder folder;
  const CommandResult failed = in_setup("logged log Trying sh -c 'echo why; exit 3'", folder);
  EXPECT_EQ(failed.exit_code, 1);
  EXPECT_NE(failed.err.find("==> Trying"), std::string::npos) << failed.err;
  EXPECT_NE(failed.err.find("why"), std::string::npos) << failed.err;
}

}  // namespace
}  // namespace heteroperf::testing
