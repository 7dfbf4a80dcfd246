#include "metrics/rate.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "metrics/base/error.hpp"
#include "metrics/base/random.hpp"

namespace heteroperf {
namespace {

using Durations = std::vector<std::int64_t>;

/// `slow` steps of three times the time, then steady ones, all with 10 % noise.
Durations warming(std::size_t slow, std::size_t all, std::uint64_t seed) {
  RandomStream random(seed);
  Durations durations;
  for (std::size_t i = 0; i < all; ++i) {
    const auto noise = static_cast<std::int64_t>(random.below(100000));
    durations.push_back((i < slow ? 3000000 : 1000000) + noise);
  }
  return durations;
}

TEST(SteadyWindow, CutsTwoStepsOfASteadyRun) {
  EXPECT_EQ(find_steady_window(Durations(100, 1000)), (SteadyWindow{2, WarmupEnd::settled}));
  int exact = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    exact += find_steady_window(warming(0, 60, seed)).warmup_steps == 2;
  }
  EXPECT_GT(exact, 170);  // the tests together raise a false alarm in about 8 % of runs
}

TEST(SteadyWindow, FindsWhereSlowStepsEnd) {
  for (std::size_t slow : {4u, 8u, 15u, 30u}) {
    for (std::size_t all : {100u, 200u}) {
      const SteadyWindow window = find_steady_window(warming(slow, all, slow + all));
      EXPECT_EQ(window.end, WarmupEnd::settled);
      EXPECT_GE(window.warmup_steps + 1, slow) << all;  // a single one is too few to be seen
      EXPECT_LE(window.warmup_steps, slow + 20) << all;
    }
  }
}

TEST(SteadyWindow, SeesAShortWarmupOfALongRun) {
  const SteadyWindow window = find_steady_window(warming(8, 4000, 1));
  EXPECT_GE(window.warmup_steps, 7u);
  EXPECT_LE(window.warmup_steps, 400u);
}

TEST(SteadyWindow, NeverCutsMoreThanHalf) {
  for (std::size_t all = 0; all < 60; ++all) {
    Durations falling(all);
    for (std::size_t i = 0; i < all; ++i) falling[i] = static_cast<std::int64_t>(1000000 - i);
    const SteadyWindow window = find_steady_window(falling);
    EXPECT_LE(window.warmup_steps, all / 2);
    EXPECT_GE(window.warmup_steps, std::min<std::size_t>(2, all / 2));
    if (all >= 20) {
      EXPECT_EQ(window, (SteadyWindow{all / 2, WarmupEnd::still_warming}));
    }
  }
}

TEST(SteadyWindow, RunsThatSlowDownAreNotWarmingUp) {
  Durations rising(100);
  for (std::size_t i = 0; i < rising.size(); ++i) rising[i] = static_cast<std::int64_t>(1000 + i);
  EXPECT_EQ(find_steady_window(rising).warmup_steps, 2u);
}

// Only the order of the durations enters: any monotone change of scale gives the same cut.
TEST(SteadyWindow, DependsOnRanksAlone) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const Durations durations = warming(seed % 12, 80, seed);
    Durations squared;
    for (std::int64_t d : durations) squared.push_back(d * d / 7 + 3);
    EXPECT_EQ(find_steady_window(durations), find_steady_window(squared));
  }
}

TEST(SteadyWindow, ARunWarmsUpForAtMostHalfOfItsOwnSteps) {
  EXPECT_EQ(warmup_steps_of_run(5, 0, 100), 5u);  // by time
  EXPECT_EQ(warmup_steps_of_run(5, 30, 0), 5u);
  EXPECT_EQ(warmup_steps_of_run(5, 30, 24), 3u);
  EXPECT_EQ(warmup_steps_of_run(5, 1, 0), 0u);
  EXPECT_EQ(warmup_steps_of_run(5, 30, 40), 0u);
}

}  // namespace
}  // namespace heteroperf
