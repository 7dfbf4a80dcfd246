#include "suite/training/step_trace.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace heteroperf {
namespace {

TEST(StepTrace, StepsComeBackOnOneClockInMicroseconds) {
  const std::vector<MeasuredStep> steps{
      {4,
       5'000,
       8'000,
       {{TimeLane::compute, 3, 5'000, 7'000}, {TimeLane::other, -1, 7'000, 8'000}}},
      {5, 9'500, 10'000, {}}};
  const std::string text = steps_text(steps, 1'000'000);
  EXPECT_EQ(earliest_start_ns(text), 1'005'000);
  const std::vector<TracedStep> read = steps_from_text(text, 1'000'000);
  ASSERT_EQ(read.size(), 2u);
  EXPECT_EQ(read[0].number, 4u);
  EXPECT_EQ(read[0].span, (TimeSpan{5, 8}));
  ASSERT_EQ(read[0].slices.size(), 2u);
  EXPECT_EQ(read[0].slices[0].lane, 0u);
  EXPECT_EQ(read[0].slices[0].instruction, 3);
  EXPECT_EQ(read[0].slices[0].span, (TimeSpan{5, 7}));
  EXPECT_EQ(read[0].slices[1].instruction, -1);
  EXPECT_EQ(read[1].span, (TimeSpan{9.5, 10}));
  EXPECT_TRUE(read[1].slices.empty());
}

TEST(StepTrace, ARankThatRanNothingIsEmpty) {
  const std::string text = steps_text({}, 0);
  EXPECT_EQ(earliest_start_ns(text), std::numeric_limits<std::int64_t>::max());
  EXPECT_TRUE(steps_from_text(text, 0).empty());
}

/// The numbers of the steps that are taken down of a run whose measured phase begins after
/// `warmup` steps.
std::vector<std::uint64_t> traced(std::uint64_t all_steps, std::uint64_t warmup,
                                  std::uint64_t ends_after) {
  StepTracer tracer(all_steps);
  for (std::uint64_t n = 0; n < ends_after; ++n) {
    std::vector<LaneSpan>* const lanes = tracer.before_step(n >= warmup, n);
    StepReport report;
    report.step = n;
    if (lanes != nullptr) lanes->push_back({TimeLane::compute, static_cast<std::int32_t>(n), 0, 1});
    tracer.after_step(report);
  }
  std::vector<std::uint64_t> numbers;
  for (const MeasuredStep& step : tracer.steps()) {
    EXPECT_EQ(step.lanes.size(), 1u);
    EXPECT_EQ(step.lanes[0].instruction, static_cast<std::int32_t>(step.number));
    numbers.push_back(step.number);
  }
  return numbers;
}

using Numbers = std::vector<std::uint64_t>;

TEST(StepTracer, TakesTheFirstMeasuredSteps) {
  EXPECT_EQ(traced(0, 2, 20), (Numbers{2, 3, 4}));
  EXPECT_EQ(traced(20, 5, 20), (Numbers{5, 6, 7}));
}

TEST(StepTracer, TakesTheLastStepsOfAShortRun) {
  EXPECT_EQ(traced(3, 1, 3), (Numbers{0, 1, 2}));
  EXPECT_EQ(traced(4, 2, 4), (Numbers{1, 2, 3}));
  EXPECT_EQ(traced(0, 2, 3), (Numbers{2}));
  EXPECT_EQ(traced(0, 2, 1), Numbers{});
}

}  // namespace
}  // namespace heteroperf
