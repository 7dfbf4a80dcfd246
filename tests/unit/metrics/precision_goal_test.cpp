#include "metrics/precision_goal.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "metrics/statistics.hpp"
#include "tests/unit/metrics/noise.hpp"

namespace heteroperf {
namespace {

using Moment = PrecisionWatch::Moment;

/// Steps one after another, of `step_s` seconds with normal noise of `spread` of it.
class Steps {
 public:
  Steps(double step_s, double spread, std::uint64_t seed = 1)
      : noise_(seed), step_s_(step_s), spread_(spread) {}

  StepWork next() {
    const std::int64_t start_ns = end_ns_;
    end_ns_ += static_cast<std::int64_t>(step_s_ * (1 + spread_ * noise_.normal()) * 1e9);
    return {start_ns, end_ns_, 1};
  }
  void add_to(PrecisionWatch& watch, int count) {
    for (int i = 0; i < count; ++i) watch.add(next());
  }
  void change_by(double factor) { step_s_ *= factor; }

 private:
  NoiseSource noise_;
  double step_s_, spread_;
  std::int64_t end_ns_ = 0;
};

TEST(EvenStudentT, IsTheQuantileOfEvenDegrees) {
  for (const int degrees : {2, 4, 6, 8, 14, 20}) {
    for (const double coverage : {0.5, 0.95, 0.975, 0.999}) {
      const double exact = student_t_quantile(coverage, degrees);
      EXPECT_NEAR(even_student_t_quantile(coverage, degrees), exact, 1e-9 * exact);
      EXPECT_EQ(even_student_t_quantile(coverage, degrees + 1),
                even_student_t_quantile(coverage, degrees));
    }
  }
}

TEST(PrecisionGoal, TheChancesOfAllLooksAddUp) {
  const PrecisionGoal goal{.fraction = 0.01};
  EXPECT_DOUBLE_EQ(goal.coverage(1), 0.975);
  double misses = 0;
  for (std::size_t look = 1; look <= 1000; ++look) misses += 1 - goal.coverage(look);
  EXPECT_LT(misses, goal.misses);
  EXPECT_GT(misses, 0.99 * goal.misses);
}

/// The measured steps after which a watch looked.
std::vector<int> looks_of(PrecisionWatch watch, Steps steps, int count) {
  steps.add_to(watch, 2);
  watch.begin();
  std::vector<int> looks;
  for (int i = 1; i <= count; ++i) {
    watch.add(steps.next());
    if (watch.look(Moment::after_step)) looks.push_back(i);
  }
  return looks;
}

/// A look at 60 s whose speed swings so many times.
PrecisionLook look_at_swings(const PrecisionGoal& goal, int swings) {
  std::vector<StepWork> steps;
  for (double time_s = 0; time_s < 60;) {
    const double duration_s = 0.1 * (1 + 0.05 * std::sin(2 * M_PI * swings * time_s / 60));
    const auto start_ns = static_cast<std::int64_t>(time_s * 1e9);
    time_s += duration_s;
    steps.push_back({start_ns, static_cast<std::int64_t>(time_s * 1e9), 1});
  }
  return look_at(goal, 1, steps, {0, steps.back().end_ns}, true);
}

TEST(PrecisionGoal, TheWiderOfFewAndMoreBlocksCounts) {
  const PrecisionGoal few{.blocks = 3}, more{.fewest_blocks = 5}, both;
  const auto width = [](const PrecisionLook& look) {
    return look.interval->high - look.interval->low;
  };
  // Three swings are alike in thirds, five in fifths.
  for (const int swings : {3, 5}) {
    const PrecisionLook by_few = look_at_swings(few, swings),
                        by_more = look_at_swings(more, swings);
    const PrecisionLook by_both = look_at_swings(both, swings);
    EXPECT_GT(swings == 3 ? width(by_more) : width(by_few),
              2 * (swings == 3 ? width(by_few) : width(by_more)));
    EXPECT_EQ(width(by_both), std::max(width(by_few), width(by_more))) << swings;
    EXPECT_GE(*by_both.half_width_fraction, *by_more.half_width_fraction) << swings;
  }
  // What a measurement ends by is narrower than what it tells: of another coverage.
  const PrecisionLook drifting = look_at_swings(both, 5);
  const double rate = static_cast<double>(drifting.steps) / drifting.window.seconds();
  EXPECT_LT(2 * *drifting.half_width_fraction * rate, width(drifting));
  EXPECT_GT(*drifting.half_width_fraction, *look_at_swings(more, 5).half_width_fraction);
}

TEST(PrecisionWatch, LooksAtDoublingStepCounts) {
  const PrecisionWatch watch({.fraction = 1e-9});
  EXPECT_EQ(looks_of(watch, Steps(1, 0.1), 1000), (std::vector{40, 80, 160, 320, 640}));
  EXPECT_EQ(looks_of(watch, Steps(0.1, 0), 1000), (std::vector{200, 400, 800})) << "20 s first";
}

TEST(PrecisionWatch, EndsAtTheFirstLookThatIsNarrowEnough) {
  PrecisionWatch watch({.fraction = 0.02});
  Steps steps(0.5, 0.01);
  steps.add_to(watch, 2);
  watch.begin();
  std::optional<PrecisionLook> look;
  for (int i = 0; !look; ++i) {
    watch.add(steps.next());
    look = watch.look(Moment::after_step);
  }
  EXPECT_TRUE(look->reached);
  EXPECT_GE(look->steps, 40u);
  EXPECT_LE(look->steps, 42u);
  EXPECT_EQ(look->coverage, 0.975);
  // It tells what was asked for, not the less that it saw.
  EXPECT_LT(*look->half_width_fraction, 0.01);
  const double rate = static_cast<double>(look->steps) / look->window.seconds();
  EXPECT_NEAR(look->interval->low, rate * 0.98, 1e-9);
  EXPECT_NEAR(look->interval->high, rate * 1.02, 1e-9);
  EXPECT_LE((look->interval->high - look->interval->low) / 2 / rate, 0.02);
}

TEST(PrecisionWatch, NoisyStepsGoOnToTheLastLook) {
  PrecisionWatch watch({.fraction = 0.001});
  Steps steps(0.6, 0.2);
  steps.add_to(watch, 2);
  watch.begin();
  std::vector<PrecisionLook> looks;
  for (int i = 1; i <= 200; ++i) {
    watch.add(steps.next());
    if (const auto look = watch.look(i == 200 ? Moment::last : Moment::after_step)) {
      looks.push_back(*look);
    }
  }
  ASSERT_EQ(looks.size(), 4u);          // 40, 80, 160 and the last
  EXPECT_GE(looks.back().steps, 100u);  // a warm-up may have been cut
  for (const PrecisionLook& look : looks) EXPECT_FALSE(look.reached);
  for (std::size_t i = 1; i < looks.size(); ++i) {
    EXPECT_GT(looks[i].coverage, looks[i - 1].coverage);
  }
}

TEST(PrecisionWatch, StepsThatBecomeFasterReachNothing) {
  PrecisionWatch watch({.fraction = 0.5});
  Steps steps(1, 0);
  steps.add_to(watch, 2);
  watch.begin();
  std::optional<PrecisionLook> look;
  while (!look) {
    watch.add(steps.next());
    steps.change_by(0.995);
    look = watch.look(Moment::after_step);
  }
  EXPECT_FALSE(look->settled);
  EXPECT_LE(*look->half_width_fraction, 0.5);
  EXPECT_FALSE(look->reached);
}

TEST(PrecisionWatch, TheLastLookOfAShortMeasurementHasNoInterval) {
  PrecisionWatch watch({.fraction = 0.5});
  Steps steps(0.5, 0.01);
  steps.add_to(watch, 2);
  watch.begin();
  EXPECT_FALSE(watch.look(Moment::last)) << "nothing was measured";
  steps.add_to(watch, 5);
  const auto look = watch.look(Moment::last);
  ASSERT_TRUE(look);
  EXPECT_FALSE(look->half_width_fraction);
  EXPECT_FALSE(look->reached);
  EXPECT_FALSE(time_needed({.fraction = 0.5}, std::span(&*look, 1)));
}

PrecisionLook look_of(double window_s, double half_width_fraction) {
  PrecisionLook look;
  look.window = {0, static_cast<std::int64_t>(window_s * 1e9)};
  look.half_width_fraction = half_width_fraction;
  return look;
}

TEST(TimeNeeded, GrowsWithTheSquareOfTheWidth) {
  const PrecisionGoal goal{.fraction = 0.01};
  const std::vector looks{look_of(10, 0.06), look_of(20, 0.04)};
  const auto needed = time_needed(goal, looks);
  ASSERT_TRUE(needed);
  // 16 times as long is four doublings, so the sixth look.
  const double wider =
      student_t_quantile(goal.coverage(6), 4) / student_t_quantile(goal.coverage(2), 4);
  EXPECT_NEAR(needed->seconds, 20 * 16 * wider * wider, 1e-3);
  EXPECT_FALSE(needed->at_least);
}

TEST(TimeNeeded, IsNotToldOfANarrowInterval) {
  EXPECT_FALSE(time_needed({.fraction = 0.01}, std::vector{look_of(10, 0.01)}));
}

TEST(TimeNeeded, PromisesNothingWhereTheIntervalDoesNotNarrow) {
  const PrecisionGoal goal{.fraction = 0.01};
  EXPECT_TRUE(time_needed(goal, std::vector{look_of(10, 0.02), look_of(20, 0.02)})->at_least);
  EXPECT_FALSE(time_needed(goal, std::vector{look_of(10, 0.03), look_of(20, 0.02)})->at_least);
  // The look before was just before: that tells nothing.
  EXPECT_FALSE(time_needed(goal, std::vector{look_of(19, 0.02), look_of(20, 0.02)})->at_least);
}

TEST(TimeNeeded, StopsAtAHundredTimesAsLong) {
  const auto needed = time_needed({.fraction = 0.001}, std::vector{look_of(20, 0.4)});
  EXPECT_EQ(needed->seconds, 2000);
  EXPECT_TRUE(needed->at_least);
}

TEST(PrecisionGoal, NoMoreLooksThanStepsDouble) {
  for (std::size_t steps = 1; steps <= 70; ++steps) {
    PrecisionWatch watch({.fraction = 1e-9, .fewest_steps = 1, .fewest_s = 0});
    std::size_t looks = 0;
    for (std::size_t i = 0; i < steps; ++i) {
      const auto start_ns = static_cast<std::int64_t>(1000 * i);
      watch.add({start_ns, start_ns + 1000, 1});
      looks += watch.look(PrecisionWatch::Moment::after_step).has_value();
    }
    looks += watch.look(PrecisionWatch::Moment::last).has_value();
    EXPECT_EQ(looks, most_looks(steps)) << steps;
  }
}

}  // namespace
}  // namespace heteroperf
