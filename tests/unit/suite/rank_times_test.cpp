#include "suite/run/rank_times.hpp"

#include <gtest/gtest.h>

namespace heteroperf {
namespace {

StepReport step(std::uint64_t n, std::int64_t start_ns, std::int64_t end_ns, TimeSplit split) {
  StepReport report;
  report.step = n;
  report.t_start_ns = start_ns;
  report.t_end_ns = end_ns;
  report.split = split;
  return report;
}

TEST(SplitSums, SayNothingWithoutAStep) { EXPECT_FALSE(SplitSums().event(0, {})); }

TEST(SplitSums, AddUpToTheWallWithTheGapsAsOther) {
  SplitSums times;
  times.add(step(5, 1'000'000'000, 2'000'000'000, {0.5, 0.25, 0.125, 0.0625, 0.0625}));
  times.add(step(6, 2'500'000'000, 3'000'000'000, {0.25, 0.125, 0.125, 0, 0}));
  const auto event = times.event(3, {Ops(100), Ops(7)});
  ASSERT_TRUE(event);
  EXPECT_EQ(event->rank, 3);
  EXPECT_EQ(event->first_step, 5u);
  EXPECT_EQ(event->steps, 2u);
  EXPECT_EQ(event->wall_s, 2.0);
  EXPECT_EQ(event->split.compute_s, 0.75);
  EXPECT_EQ(event->split.communication_s, 0.375);
  EXPECT_EQ(event->split.bubble_s, 0.25);
  EXPECT_EQ(event->split.data_s, 0.0625);
  EXPECT_EQ(event->split.other_s, 0.5625);  // half a second between the steps
  EXPECT_EQ(event->strict, Ops(200));
  EXPECT_EQ(event->recompute, Ops(14));
}

}  // namespace
}  // namespace heteroperf
