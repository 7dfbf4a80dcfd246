// How often the interval that a measurement with a precision goal tells holds the true rate, on
// simulated steps with fixed seeds. Prints the rates it sees (metrics/README.md has them).
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>

#include "tests/unit/metrics/noise.hpp"
#include "tests/unit/metrics/precision_replay.hpp"

namespace heteroperf {
namespace {

constexpr double step_s = 0.03;
constexpr double long_run_s = 4000;

/// What disturbs the steps. Every step has 3 % of noise of its own, one in a hundred takes half as
/// long again.
struct Disturbance {
  const char* name;
  double drift = 0, drift_s = 1;   ///< standard deviation and correlation time (AR(1))
  double slower = 0, spell_s = 0;  ///< another program: for so long, then as long not
  double least_held = 0;           ///< share of the replays, over both durations
};

/// The steps of one long run.
std::vector<StepWork> simulate(const Disturbance& disturbance, std::uint64_t seed) {
  NoiseSource noise(seed);
  RandomStream spikes(seed + 1);
  std::vector<StepWork> steps;
  const double kept = std::exp(-step_s / disturbance.drift_s);
  double drift = noise.normal(), time_s = 0;
  while (time_s < long_run_s) {
    drift = kept * drift + std::sqrt(1 - kept * kept) * noise.normal();
    double duration_s = step_s * (1 + 0.03 * noise.normal()) * std::exp(disturbance.drift * drift) *
                        (spikes.unit() < 0.01 ? 1.5 : 1);
    const bool spell =
        disturbance.spell_s > 0 && std::fmod(time_s, 2 * disturbance.spell_s) < disturbance.spell_s;
    if (spell) duration_s *= 1 + disturbance.slower;
    steps.push_back({static_cast<std::int64_t>(time_s * 1e9),
                     static_cast<std::int64_t>((time_s + duration_s) * 1e9), 1});
    time_s += duration_s;
  }
  return steps;
}

class PrecisionStudy : public ::testing::TestWithParam<Disturbance> {};

TEST_P(PrecisionStudy, TheIntervalToldHoldsTheRate) {
  constexpr int replays = 200;
  const Disturbance& disturbance = GetParam();
  const PrecisionGoal goal{.fraction = 0.01};
  const std::vector<StepWork> steps = simulate(disturbance, 11);
  RandomStream random(1);
  ReplayTally all;
  for (const double duration_s : {60.0, 300.0}) {
    const ReplayTally tally = replay_many(goal, duration_s, steps, replays, random);
    std::printf("%-22s at most %3.0f s: %5.1f %% hold the rate, %5.1f %% reached 1 %%, %5.1f s\n",
                disturbance.name, duration_s, 100.0 * tally.held / replays,
                100.0 * tally.reached / replays, tally.window_s / replays);
    all += tally;
  }
  EXPECT_GE(all.held, disturbance.least_held * all.replays);
}

INSTANTIATE_TEST_SUITE_P(
    , PrecisionStudy,
    ::testing::Values(
        Disturbance{.name = "none", .least_held = 0.95},
        Disturbance{.name = "drift 2 % in 2 s", .drift = 0.02, .drift_s = 2, .least_held = 0.95},
        Disturbance{.name = "drift 1 % in 5 s", .drift = 0.01, .drift_s = 5, .least_held = 0.93},
        Disturbance{
            .name = "drift 0.5 % in 20 s", .drift = 0.005, .drift_s = 20, .least_held = 0.9},
        // Longer than the window: nothing in it tells.
        Disturbance{.name = "drift 1 % in 20 s", .drift = 0.01, .drift_s = 20},
        Disturbance{.name = "drift 2 % in 20 s", .drift = 0.02, .drift_s = 20},
        Disturbance{.name = "spells of 2 s, 40 %", .slower = 0.4, .spell_s = 2, .least_held = 0.95},
        Disturbance{
            .name = "spells of 10 s, 20 %", .slower = 0.2, .spell_s = 10, .least_held = 0.93}));

}  // namespace
}  // namespace heteroperf
