#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/unit/results/rule_cases.hpp"

namespace heteroperf {
namespace {

TEST(Ruleset, LoadAndThrottlingNameTheHosts) {
  SampleRun run = fixed_run();
  for (int host = 0; host < 8; ++host) {
    run.insert_before_stop(HostLoadEvent{400,
                                         4,
                                         host == 0 ? 0.1 : 0.5,
                                         {},
                                         {},
                                         host == 6 ? 100.0 : 0,
                                         fmt::format("node-{}", host),
                                         4 * host});
  }
  const Validity validity = judged(run);
  ASSERT_EQ(validity.reasons.size(), 2u);
  EXPECT_EQ(validity.reasons[0].rule, "other_load");
  EXPECT_EQ(validity.reasons[0].actual,
            "node-1: 12.5 % of 4 CPUs; node-2: 12.5 % of 4 CPUs; node-3: 12.5 % of 4 CPUs; "
            "node-4: 12.5 % of 4 CPUs; node-5: 12.5 % of 4 CPUs; and 2 more");
  EXPECT_EQ(validity.reasons[1].rule, "throttled");
  EXPECT_EQ(validity.reasons[1].actual,
            "node-6: of 1600 s 0 s by heat, 0 times, 100 s by the control group's limit");
}

TEST(Ruleset, ThrottlingNamesTheGpu) {
  SampleRun run = fixed_run();
  run.insert_before_stop(GpuSlowdownEvent{"node-1", "0000:1b:00.0", 3, 400, 40, 0});
  const Validity validity = judged(run);
  ASSERT_EQ(validity.reasons.size(), 1u);
  EXPECT_EQ(validity.reasons[0].actual, "node-1: GPU 0000:1b:00.0 40 of 400 s by heat");
}

}  // namespace
}  // namespace heteroperf
