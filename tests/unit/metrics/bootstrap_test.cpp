#include "metrics/base/clock.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "metrics/base/error.hpp"
#include "metrics/base/random.hpp"
#include "metrics/rate.hpp"
#include "metrics/statistics.hpp"

namespace heteroperf {
namespace {

using Values = std::vector<double>;

/// About normal with mean 0 and deviation 1: twelve uniforms.
double bell(RandomStream& random) {
  double sum = -6;
  for (int i = 0; i < 12; ++i) sum += random.unit();
  return sum;
}

Values bell_values(std::size_t count, std::uint64_t seed) {
  RandomStream random(seed);
  Values values(count);
  for (double& value : values) value = 10 + bell(random);
  return values;
}

TEST(Bootstrap, SameSeedSameBitsOtherSeedOtherBits) {
  const Values values = bell_values(30, 1);
  const Interval first = bootstrap_interval(values, median, {.seed = 7});
  EXPECT_EQ(first, bootstrap_interval(values, median, {.seed = 7}));
  EXPECT_FALSE(first == bootstrap_interval(values, mean, {.seed = 8}));
}

// A change of these bits means that stored records no longer verify.
TEST(Bootstrap, BitsAreFixed) {
  const Interval interval = bootstrap_interval(Values{1, 2, 4, 8, 16, 32, 64}, mean, {.seed = 3});
  EXPECT_EQ(interval.low, 32.0 / 7);
  EXPECT_EQ(interval.high, 248.0 / 7);
}

TEST(Bootstrap, ConstantValuesGiveAPoint) {
  EXPECT_EQ(bootstrap_interval(Values(12, 3.5), median), (Interval{3.5, 3.5}));
}

TEST(Bootstrap, CoversTheTrueMeanAboutAsOftenAsAsked) {
  int covered = 0;
  for (std::uint64_t round = 0; round < 400; ++round) {
    const Interval interval =
        bootstrap_interval(bell_values(40, 100 + round), mean, {.seed = round, .resamples = 500});
    covered += interval.low <= 10 && 10 <= interval.high;
  }
  EXPECT_GE(covered, 360);  // 90 %; a percentile interval of 40 values falls a little short of 95 %
  EXPECT_LE(covered, 396);
}

// Neighbours that move together: single draws underestimate the spread of the mean, blocks do not.
TEST(Bootstrap, BlocksWidenTheIntervalOfCorrelatedValues) {
  RandomStream random(11);
  Values values(400);
  double state = 0;
  for (double& value : values) value = state = 0.9 * state + bell(random);
  const auto width = [&](int block) {
    const Interval i = bootstrap_interval(values, mean, {.seed = 1, .block_length = block});
    return i.high - i.low;
  };
  EXPECT_GT(width(20), 2 * width(1));
}

TEST(Bootstrap, WrongSettingsAreBugs) {
  EXPECT_THROW(bootstrap_interval(Values{}, mean), Error);
  EXPECT_THROW(bootstrap_interval(Values{1}, mean, {.resamples = 0}), Error);
  EXPECT_THROW(bootstrap_interval(Values{1}, mean, {.block_length = 0}), Error);
}

/// Back-to-back steps from 0, of about 1 s with the given deviation, each of one operation.
std::vector<StepWork> steps_of(std::size_t count, double deviation_s, std::uint64_t seed) {
  RandomStream random(seed);
  std::vector<StepWork> steps;
  std::int64_t now_ns = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const auto duration_ns = static_cast<std::int64_t>(1e9 * (1 + deviation_s * bell(random)));
    steps.push_back({now_ns, now_ns + duration_ns, 1.0});
    now_ns += duration_ns;
  }
  return steps;
}

TEST(RateInterval, CountsStepsThatEndInTheWindow) {
  const std::vector<StepWork> steps{{0, 10, 1}, {10, 20, 2}, {20, 30, 4}, {30, 40, 8}};
  EXPECT_DOUBLE_EQ(rate_per_second(steps, {10, 30}), 6 / 20e-9);  // the end at 10 is outside
  EXPECT_DOUBLE_EQ(rate_per_second(steps, {9, 39}), 7 / 30e-9);
  EXPECT_THROW(rate_per_second(steps, {10, 10}), Error);
}

TEST(RateInterval, StraddlingStepsAreSharedByTime) {
  // Parts (0,25], (25,50], (50,75], (75,100]: the second step has 15 of 40 ns in the second part.
  const std::vector<StepWork> steps{{-20, 10, 3}, {35, 75, 8}, {90, 110, 5}};
  EXPECT_EQ(sub_window_amounts(steps, {0, 100}, 4), (Values{3, 3, 5, 0}));
}

TEST(RateInterval, SharesSumToTheTotalForRandomOverlappingSteps) {
  RandomStream random(21);
  for (int round = 0; round < 200; ++round) {
    std::vector<StepWork> steps;
    double total = 0;
    const TimeWindow window{100, 100 + static_cast<std::int64_t>(20 + random.below(5000))};
    for (int i = 0; i < 50; ++i) {
      const auto start = static_cast<std::int64_t>(random.below(5000));
      const auto length = static_cast<std::int64_t>(random.below(400));
      steps.push_back({start, start + length, static_cast<double>(1 + random.below(100))});
      if (window.contains(start + length)) total += steps.back().amount;
    }
    const Values parts = sub_window_amounts(steps, window, 1 + random.below(30));
    double sum = 0;
    for (double part : parts) sum += part;
    EXPECT_NEAR(sum, total, 1e-9 * (1 + total));
  }
}

TEST(RateInterval, NothingBelowTenSteps) {
  const auto nine = steps_of(9, 0.1, 1), ten = steps_of(10, 0.1, 1);
  EXPECT_FALSE(rate_interval(nine, {0, nine.back().end_ns}));
  EXPECT_TRUE(rate_interval(ten, {0, ten.back().end_ns}));
  EXPECT_FALSE(rate_interval(ten, {ten.front().end_ns, ten.back().end_ns}));
}

TEST(RateInterval, HoldsTheRateAndShrinksWithMoreSteps) {
  double last_width = 1;
  for (std::size_t count : {40u, 400u, 4000u}) {
    const auto steps = steps_of(count, 0.2, 5);
    const TimeWindow window{0, steps.back().end_ns};
    const Interval interval = rate_interval(steps, window).value();
    const double rate = rate_per_second(steps, window);
    EXPECT_LT(interval.low, rate);
    EXPECT_GT(interval.high, rate);
    EXPECT_LT(interval.high - interval.low, last_width / 2);
    last_width = interval.high - interval.low;
  }
}

TEST(RateInterval, CoversTheTrueRate) {
  for (std::size_t count : {12u, 40u, 200u}) {
    int covered = 0;
    for (std::uint64_t round = 0; round < 300; ++round) {
      const auto steps = steps_of(count, 0.2, 1000 + round);
      const Interval interval = rate_interval(steps, {0, steps.back().end_ns}, round).value();
      covered += interval.low <= 1 && 1 <= interval.high;
    }
    EXPECT_GE(covered, 270) << count << " steps";
    EXPECT_LE(covered, 299) << count << " steps";
  }
}

}  // namespace
}  // namespace heteroperf
