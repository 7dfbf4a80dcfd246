#include "suite/run/prepare.hpp"

#include <gtest/gtest.h>

#include "metrics/base/error.hpp"

namespace heteroperf {
namespace {

std::string problems_of(const std::string& out, const std::string& trace) {
  RunConfig config;
  config.workload = "llm";
  config.model.size = "nano";
  config.batch.micro_batch = 1;
  config.out = out;
  config.trace = trace;
  Placement placement;
  placement.ranks = 1;
  placement.bindings.resize(1);
  try {
    prepare_runs(config, {}, placement, 1, Reading::nothing);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

/// The run makes its own folder before it writes there.
TEST(PrepareRuns, ATraceMayLieInTheFolderOfTheRun) {
  EXPECT_EQ(problems_of("not-yet", "not-yet/trace.json"), "");
  EXPECT_EQ(problems_of("not-yet/", "./not-yet/trace.json"), "");
  EXPECT_EQ(problems_of("", "trace.json"), "");
}

TEST(PrepareRuns, AnotherFolderMustBeThere) {
  for (const char* trace : {"elsewhere/trace.json", "not-yet/below/trace.json"}) {
    const std::string problems = problems_of("not-yet", trace);
    EXPECT_NE(problems.find("cannot be written"), std::string::npos) << trace << problems;
  }
}

}  // namespace
}  // namespace heteroperf
