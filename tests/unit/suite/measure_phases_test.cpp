#include "suite/training/measure_phases.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace heteroperf {
namespace {

constexpr std::int64_t second_ns = 1'000'000'000;

/// Steps of a second each on a clock of the test, which begins at 0.
class MeasurePhasesTest : public ::testing::Test {
 protected:
  /// The directives until the measurement ends, at most 100.
  std::vector<Directive> course(std::uint64_t warmup_steps, std::uint64_t steps_before = 0) {
    MeasurePhases phases(config_, warmup_steps, steps_before, {[this] { return now_ns_; }, over_});
    std::vector<Directive> directives;
    std::uint64_t steps = steps_before;
    while (directives.size() < 100) {
      directives.push_back(phases.next(steps));
      looks_ += phases.look() ? 1 : 0;
      if (directives.back() == Directive::end || directives.back() == Directive::interrupt) break;
      phases.add({now_ns_, now_ns_ + second_ns, 8});
      now_ns_ += second_ns;
      ++steps;
    }
    measuring_ = phases.measuring();
    return directives;
  }

  MeasureConfig config_;
  std::function<bool()> over_;
  std::int64_t now_ns_ = 0;
  int looks_ = 0;
  bool measuring_ = false;
};

using enum Directive;

TEST_F(MeasurePhasesTest, ByTimeWarmUpStepsThenTheDuration) {
  config_.duration_s = 2.5;
  EXPECT_EQ(course(2), (std::vector{go_on, go_on, next_phase, go_on, go_on, end}));
  EXPECT_EQ(looks_, 0);
}

TEST_F(MeasurePhasesTest, WithoutWarmUpTheFirstStepIsMeasured) {
  config_.duration_s = 1;
  EXPECT_EQ(course(0), (std::vector{next_phase, end}));
}

TEST_F(MeasurePhasesTest, StepsCountTheWholeTrainingAndNotTheTime) {
  config_.duration_s = 1;
  config_.steps = 4;
  EXPECT_EQ(course(1), (std::vector{go_on, next_phase, go_on, go_on, end}));
  EXPECT_EQ(course(1, 2), (std::vector{go_on, next_phase, end}));
  EXPECT_EQ(course(1, 4), (std::vector{end}));
  EXPECT_FALSE(measuring_);
}

TEST_F(MeasurePhasesTest, AReplayLeavesWhateverThePhase) {
  config_.replay_steps = 2;
  EXPECT_EQ(course(1), (std::vector{go_on, next_phase, interrupt}));
  EXPECT_EQ(course(5, 7), (std::vector{go_on, go_on, interrupt}));
  EXPECT_FALSE(measuring_);
}

TEST_F(MeasurePhasesTest, GroupsAskForTheirCommonEndOnlyInTheMeasuredPhase) {
  int asked = 0;
  over_ = [&] { return ++asked == 3; };
  EXPECT_EQ(course(2), (std::vector{go_on, go_on, next_phase, go_on, go_on, end}));
  EXPECT_EQ(asked, 3);
}

TEST_F(MeasurePhasesTest, AnEvenThroughputIsKnownBeforeTheDurationIsOver) {
  config_.duration_s = 1000;
  config_.until_percent = {5};
  config_.until_after_s = 3;
  const std::vector<Directive> directives = course(1);
  EXPECT_EQ(looks_, 1);
  EXPECT_EQ(directives.size(), 42u) << "40 measured steps are the fewest";
  EXPECT_EQ(directives.back(), end);
}

TEST_F(MeasurePhasesTest, TheEndIsLookedAtOnceMore) {
  config_.duration_s = 4;
  config_.until_percent = {1e-9};
  EXPECT_EQ(course(1), (std::vector{go_on, next_phase, go_on, go_on, go_on, end}));
  EXPECT_EQ(looks_, 1);
}

TEST_F(MeasurePhasesTest, TheFractionIsOfAllStepsOrOfThePhase) {
  config_.duration_s = 10;
  MeasurePhases by_time(config_, 4, 0, {[this] { return now_ns_; }, {}});
  EXPECT_EQ(by_time.next(1), go_on);
  EXPECT_EQ(by_time.fraction(1), 0.25);
  EXPECT_EQ(by_time.next(4), next_phase);
  now_ns_ += 5 * second_ns;
  EXPECT_EQ(by_time.fraction(9), 0.5);
  config_.steps = 20;
  EXPECT_EQ(MeasurePhases(config_, 4, 10).fraction(15), 0.5);
}

}  // namespace
}  // namespace heteroperf
