#include "suite/training/step_times.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

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

TEST(SplitSums, TellComponentsApart) {
  StepTimes times({"vision", "text"});
  StepReport first = step(0, 0, 1'000'000'000, {0.5, 0, 0, 0, 0.5}), second = first;
  first.components = {{0.25, 100}, {0.125, 7}};
  second.components = {{0.5, 100}, {std::nullopt, 7}};
  const StepOperations operations{Ops(9), Ops(3), {{Ops(5), Ops(2), {}}, {Ops(4), Ops(1), {}}}};
  times.add(first, operations);
  times.add(second, operations);
  const auto event = times.time_event(0);
  ASSERT_TRUE(event);
  EXPECT_EQ(event->strict, Ops(18));
  ASSERT_EQ(event->components.size(), 2u);
  EXPECT_EQ(event->components[0], (ComponentTime{"vision", 0.75, Ops(10), Ops(4), 200}));
  // One step that cannot tell leaves the time of all unknown.
  EXPECT_EQ(event->components[1], (ComponentTime{"text", std::nullopt, Ops(8), Ops(2), 14}));
}

TEST(SplitSums, SayNothingWithoutAStep) { EXPECT_FALSE(StepTimes().time_event(0)); }

TEST(SplitSums, AddUpToTheWallWithTheGapsAsOther) {
  StepTimes times;
  times.add(step(5, 1'000'000'000, 2'000'000'000, {0.5, 0.25, 0.125, 0.0625, 0.0625}),
            {Ops(100), Ops(7)});
  times.add(step(6, 2'500'000'000, 3'000'000'000, {0.25, 0.125, 0.125, 0, 0}), {Ops(80), Ops(0)});
  const auto event = times.time_event(3);
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
  EXPECT_EQ(event->strict, Ops(180));
  EXPECT_EQ(event->recompute, Ops(7));
}

TEST(ComputeSamples, SayNothingWithoutAStep) { EXPECT_FALSE(StepTimes().compute_event(0)); }

TEST(ComputeSamples, KeepEveryStepOfAShortRun) {
  StepTimes samples;
  for (std::uint64_t n = 0; n < 3; ++n) {
    samples.add(step(7 + n, 0, 1, {0.001 * static_cast<double>(n + 1), 1, 1, 1, 1}), {});
  }
  const auto event = samples.compute_event(2);
  ASSERT_TRUE(event);
  EXPECT_EQ(event->rank, 2);
  EXPECT_EQ(event->first_step, 7u);
  EXPECT_EQ(event->steps, 3u);
  EXPECT_EQ(event->steps_per_value, 1u);
  EXPECT_EQ(event->compute_ns, (std::vector<std::int64_t>{1'000'000, 2'000'000, 3'000'000}));
}

TEST(ComputeSamples, AreMeansOfNeighboursInALongRun) {
  for (const std::uint64_t steps : {256u, 257u, 1000u, 12345u}) {
    StepTimes samples;
    for (std::uint64_t n = 0; n < steps; ++n) {
      samples.add(step(n, 0, 1, {1e-6 * static_cast<double>(n), 0, 0, 0, 0}), {});
    }
    const auto event = samples.compute_event(0);
    ASSERT_TRUE(event);
    const std::uint64_t each = event->steps_per_value;
    EXPECT_LE(event->compute_ns.size(), StepTimes::most_values);
    EXPECT_EQ(event->compute_ns.size(), (steps + each - 1) / each);
    for (std::uint64_t i = 0; i < event->compute_ns.size(); ++i) {
      const std::uint64_t first = i * each, last = std::min(steps, first + each) - 1;
      const double mean_ns = 1e3 * (static_cast<double>(first) + static_cast<double>(last)) / 2;
      EXPECT_NEAR(static_cast<double>(event->compute_ns[i]), mean_ns, 1.0) << steps << ' ' << i;
    }
  }
}

}  // namespace
}  // namespace heteroperf
