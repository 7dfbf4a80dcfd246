#include "suite/planning/measured_plan.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <limits>

#include "metrics/base/error.hpp"
#include "runners/plan/even_plan.hpp"
#include "runners/plan/plan_json.hpp"
#include "tests/unit/results/sample_run.hpp"

namespace heteroperf {
namespace {

/// The machine of a run of `ranks` threads by its journal, which lies beside a plan of two ranks.
std::optional<Cluster> machine_of_run(std::int32_t ranks) {
  const TemporaryFolder folder;
  SampleRun run = fixed_run();
  auto& scale = run.last<ScaleEvent>();
  scale.ranks = ranks;
  scale.transport = "threads";
  PeakEvent peak{2e9, "fp32"};
  peak.memory_bytes_per_second = 4e9;
  run.erase_all<PeakEvent>();
  run.insert_before_stop(peak);
  const RunFiles files{folder.path()};
  std::ofstream(files.journal(), std::ios::binary) << run.text();
  EvenPlanRequest request;
  request.data = 2;
  request.micro_batch = 1;
  std::ofstream(files.plan()) << plan_text(even_plan(small_classifier(), request));
  return machine_beside(files.plan());
}

TEST(MachineBeside, IsAnEqualShareForEachRank) {
  const auto machine = machine_of_run(2);
  ASSERT_TRUE(machine);
  EXPECT_EQ(machine->ranks.size(), 2u);
  EXPECT_EQ(machine->classes.front().count, 2);
  EXPECT_DOUBLE_EQ(machine->classes.front().rates.at("fp32").value(), 1e9);
}

/// A stranger's journal may hold any number.
TEST(MachineBeside, HasTheRanksOfThePlan) {
  for (const std::int32_t ranks : {0, 1, -1, 2'000'000'000, std::numeric_limits<int>::min()}) {
    try {
      machine_of_run(ranks);
      ADD_FAILURE() << ranks;
    } catch (const UserError& error) {
      const std::string words = error.what();
      EXPECT_NE(words.find("the plan has 2 ranks, the run's journal " + std::to_string(ranks)),
                std::string::npos)
          << words;
    }
  }
}

}  // namespace
}  // namespace heteroperf
