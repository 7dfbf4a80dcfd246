#include "metrics/turn_pairs.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "metrics/base/random.hpp"
#include "metrics/sequential_test.hpp"
#include "tests/unit/metrics/noise.hpp"

namespace heteroperf {
namespace {

TurnQuad quad_of(bool base_first, double first, double second, double third, double fourth) {
  return {{Turn{first}, Turn{second}, Turn{third}, Turn{fourth}}, base_first};
}

TEST(TurnQuad, EffectIsHeadAgainstBaseInEitherOrder) {
  EXPECT_NEAR(quad_of(true, 1, 2, 2, 1).time().effect(), std::log(2.0), 1e-15);
  EXPECT_NEAR(quad_of(false, 2, 1, 1, 2).time().effect(), std::log(2.0), 1e-15);
}

TEST(TurnQuad, LinearDriftFallsOutOfBoth) {
  const auto at = [](double t) { return std::exp(0.1 * t); };
  for (const bool base_first : {true, false}) {
    const TurnQuad quad = quad_of(base_first, at(0), at(1), at(2), at(3));
    EXPECT_NEAR(quad.time().effect(), 0, 1e-15);
    EXPECT_NEAR(quad.time().control(), 0, 1e-15);
  }
}

TEST(TurnQuad, ControlIsBlindToTheProgramsAndSeesTheMachine) {
  EXPECT_NEAR(quad_of(true, 1, 3, 3, 1).time().control(), 0, 1e-15);
  EXPECT_NEAR(quad_of(true, 1, 1, 2, 1).time().control(), 3 * std::log(2.0) / std::sqrt(20.0),
              1e-15);
}

TEST(TurnQuad, UnlikeLoadTakesWeight) {
  TurnQuad quad = quad_of(true, 1, 1, 1, 1);
  for (Turn& turn : quad.turns) turn.load = 0.4;
  EXPECT_DOUBLE_EQ(quad.weight(), 1);
  quad.turns[2].load = 0.4 + TurnQuad::half_weight_load;
  EXPECT_NEAR(quad.weight(), 0.5, 1e-12);
}

TEST(TrimmedMean, EqualWeightsGiveTheClassicalOne) {
  const std::vector<double> values{9, 1, 2, 3, 100, 4, 5, -50, 7, 6}, weights(10, 1.0);
  const WeightedMean found = trimmed_mean(values, weights, 0.2);
  EXPECT_DOUBLE_EQ(found.mean, (2 + 3 + 4 + 5 + 6 + 7) / 6.0);
  // Winsorized at the third smallest and the eighth: 2 2 2 3 4 5 6 7 7 7, variance 4.25.
  EXPECT_NEAR(found.standard_error, std::sqrt(4.25 / 9) / 0.6, 1e-9);
}

TEST(TrimmedMean, AnOutlierMovesNothing) {
  std::vector<double> values(40, 0.0), weights(40, 1.0);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = 0.01 * static_cast<double>(i % 5);
  const WeightedMean calm = trimmed_mean(values, weights, 0.2);
  values[7] = 1e6;
  const WeightedMean hit = trimmed_mean(values, weights, 0.2);
  EXPECT_LT(std::fabs(hit.mean - calm.mean), 0.002);
  EXPECT_LT(hit.standard_error, 2 * calm.standard_error);
}

TEST(TrimmedMean, ValuesOfNoWeightHardlyCount) {
  const std::vector<double> values{0, 0.1, -0.1, 0, 5, 5, 5, 5};
  const std::vector<double> weights{1, 1, 1, 1, 1e-6, 1e-6, 1e-6, 1e-6};
  EXPECT_NEAR(trimmed_mean(values, weights, 0.2).mean, 0, 0.02);
}

TEST(CombinePairs, ErrorIsNeverBelowWhatThePairsOwnErrorsLeave) {
  std::vector<TurnPair> pairs(6);
  for (TurnPair& pair : pairs) pair = {{0.01, 0.006}, {0, 0.004}, 20};
  const PairsEvidence found = combine_pairs(pairs);
  EXPECT_DOUBLE_EQ(found.effect.mean, 0.01);
  EXPECT_NEAR(found.effect.standard_error, 0.006 / std::sqrt(6.0), 1e-15);
  EXPECT_NEAR(found.control.standard_error, 0.004 / std::sqrt(6.0), 1e-15);
  EXPECT_EQ(found.effect.degrees, 5);
  EXPECT_EQ(found.process_spread, 0);
}

TEST(CombinePairs, LuckOfProcessesWidensTheErrorAndIsTold) {
  std::vector<TurnPair> pairs;
  for (const double effect : {0.02, -0.02, 0.02, -0.02, 0.02, -0.02}) {
    pairs.push_back({{effect, 0.001}, {0, 0.001}, 20});
  }
  const PairsEvidence found = combine_pairs(pairs);
  const double spread = 0.02 * std::sqrt(6.0 / 5.0);
  EXPECT_NEAR(found.effect.standard_error, spread / std::sqrt(6.0), 1e-12);
  EXPECT_NEAR(found.process_spread, std::sqrt((spread * spread - 1e-6) / 2), 1e-12);
}

TEST(CombinePairs, OneUnluckyProcessOfEightPairsDecidesNothing) {
  std::vector<TurnPair> pairs;
  for (const double effect : {0.004, -0.005, 0.003, -0.22, -0.004, 0.005, -0.003, 0.001}) {
    pairs.push_back({{effect, 0.002}, {0, 0.002}, 20});
  }
  const PairsEvidence found = combine_pairs(pairs);
  EXPECT_NEAR(found.effect.mean, -0.004 / 6, 1e-12);  // without -0.22 and 0.005
  EXPECT_LT(found.effect.standard_error, 0.003);
  EXPECT_EQ(found.effect.degrees, 5);
  EXPECT_GT(found.process_spread, 0.05);
  pairs.resize(7);  // of fewer nobody is left out
  EXPECT_LT(combine_pairs(pairs).effect.mean, -0.03);
}

/// A machine whose speed another process halves for spells, with jitter, spikes and drift; one gate
/// of `most` pairs at most over programs `slowdown` apart, whose processes differ by `luck`.
ChangeVerdict simulated_gate(std::uint64_t seed, double margin, double slowdown, double luck) {
  RandomStream random(seed);
  NoiseSource noise(seed);
  const auto normal = [&] { return noise.normal(); };
  SequentialRule rule;
  rule.margin = -std::log1p(-margin);
  rule.noise = 0;
  rule.fewest_blocks = 6;
  std::vector<TurnPair> pairs;
  double time = 0, drift = 0;
  while (pairs.size() < rule.most_blocks) {
    const double base_luck = luck * normal(), head_luck = luck * normal();
    std::vector<TurnQuad> quads;
    for (int q = 0; q < 30; ++q) {
      TurnQuad quad;
      quad.base_first = random.unit() < 0.5;
      for (std::size_t i = 0; i < 4; ++i) {
        const bool is_base = (i == 0 || i == 3) == quad.base_first;
        const bool loaded = std::fmod(time, 4.0) < 2.0;
        drift = 0.99 * drift + 0.003 * normal();
        double log_s = std::log(0.15) + drift + 0.02 * normal() + (loaded ? 0.5 : 0.0);
        if (random.unit() < 0.01) log_s -= 0.2 * std::log(1 - random.unit());
        log_s += is_base ? base_luck : head_luck + slowdown;
        quad.turns[i] = {std::exp(log_s), loaded ? 0.4 : 0.0};
        time += quad.turns[i].step_s;
      }
      quads.push_back(quad);
    }
    pairs.push_back(summarize_pair(quads));
    if (pairs.size() < rule.fewest_blocks) continue;
    const PairsEvidence found = combine_pairs(pairs);
    LogRatio gain = found.effect;
    gain.mean = -gain.mean;
    const Evidence evidence{gain, found.control, pairs.size()};
    const ChangeVerdict verdict = judge_evidence(std::span(&evidence, 1), rule).front().verdict;
    if (verdict != ChangeVerdict::undecided) return verdict;
  }
  return ChangeVerdict::undecided;
}

int count_of(ChangeVerdict wanted, double margin, double slowdown, double luck, int gates) {
  int count = 0;
  for (int i = 0; i < gates; ++i) {
    count += simulated_gate(static_cast<std::uint64_t>(i + 1), margin, slowdown, luck) == wanted;
  }
  return count;
}

TEST(LockstepGates, UnchangedProgramsPassOnALoadedMachine) {
  EXPECT_GE(count_of(ChangeVerdict::no_regression, 0.015, 0, 0.004, 200), 170);
  EXPECT_LE(count_of(ChangeVerdict::regression, 0.015, 0, 0.004, 200), 2);
}

TEST(LockstepGates, ALossOfTwiceTheThresholdIsFound) {
  EXPECT_GE(count_of(ChangeVerdict::regression, 0.015, 0.03, 0.004, 200), 180);
  EXPECT_EQ(count_of(ChangeVerdict::no_regression, 0.015, 0.03, 0.004, 200), 0);
}

TEST(LockstepGates, LuckOfProcessesIsNotTakenForALoss) {
  EXPECT_LE(count_of(ChangeVerdict::regression, 0.01, 0, 0.02, 200), 2);
}

}  // namespace
}  // namespace heteroperf
