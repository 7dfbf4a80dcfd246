// How often the sequential test and the change points are right, on simulated noise with fixed
// seeds. Prints the rates it sees.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>

#include "metrics/change_points.hpp"
#include "metrics/sequential_test.hpp"
#include "metrics/statistics.hpp"
#include "tests/unit/metrics/noise.hpp"

namespace heteroperf {
namespace {

constexpr int iterations_per_run = 30;
constexpr double left_by_interleaving = 0.3;  // of a run's own effect

struct Noise {
  double run, iteration;
};

/// A run of one program: the logarithms of its two rates.
struct SimulatedRun {
  double by_median = 0, by_mean = 0;
  std::vector<double> iterations;
};

SimulatedRun simulate_run(NoiseSource& source, Noise noise, double common, double gain) {
  const double level = gain + common + left_by_interleaving * noise.run * source.normal();
  SimulatedRun run;
  double sum = 0;
  for (int i = 0; i < iterations_per_run; ++i) {
    run.iterations.push_back(std::exp(noise.iteration * source.normal() - level));
    sum += run.iterations.back();
  }
  run.by_median = -std::log(median(run.iterations));
  run.by_mean = -std::log(sum / iterations_per_run);
  return run;
}

struct Gate {
  ChangeVerdict verdict = ChangeVerdict::undecided;
  std::size_t blocks = 0;
  std::vector<Evidence> family;  // of the last look
};

ChangeVerdict worst(const std::vector<Judgement>& judged) {
  const auto any = [&](ChangeVerdict verdict) {
    return std::any_of(judged.begin(), judged.end(),
                       [&](const Judgement& one) { return one.verdict == verdict; });
  };
  for (const auto verdict : {ChangeVerdict::regression, ChangeVerdict::undecided}) {
    if (any(verdict)) return verdict;
  }
  return any(ChangeVerdict::improvement) ? ChangeVerdict::improvement
                                         : ChangeVerdict::no_regression;
}

/// One gate as `heteroperf gate` goes about it: blocks until it is settled.
Gate simulate_gate(NoiseSource& source, Noise noise, double gain, const SequentialRule& rule) {
  std::vector<double> effects[2], controls[2];
  for (std::size_t blocks = 1;; ++blocks) {
    const double common =
        noise.run * std::sqrt(1 - left_by_interleaving * left_by_interleaving) * source.normal();
    SimulatedRun runs[4];
    for (int i = 0; i < 4; ++i) {
      runs[i] = simulate_run(source, noise, common, i == 1 || i == 2 ? gain : 0);
    }
    const AbbaBlock by_median{runs[0].by_median, runs[1].by_median, runs[2].by_median,
                              runs[3].by_median};
    const AbbaBlock by_mean{runs[0].by_mean, runs[1].by_mean, runs[2].by_mean, runs[3].by_mean};
    effects[0].push_back(by_median.effect());
    controls[0].push_back(by_median.control());
    effects[1].push_back(by_mean.effect());
    controls[1].push_back(by_mean.control());
    if (blocks < rule.fewest_blocks) continue;
    std::vector<Evidence> family;
    for (int i = 0; i < 2; ++i) {
      family.push_back({paired_log_ratio(effects[i]), paired_log_ratio(controls[i]), blocks});
    }
    const ChangeVerdict verdict = worst(judge_evidence(family, rule));
    if (verdict != ChangeVerdict::undecided || blocks == rule.most_blocks)
      return {verdict, blocks, family};
  }
}

struct GateRates {
  double regression = 0, cleared = 0, undecided = 0, blocks = 0;
};

GateRates study_gates(Noise noise, double gain, std::size_t most_blocks, int trials,
                      std::uint64_t seed) {
  NoiseSource source(seed);
  SequentialRule rule;
  rule.most_blocks = most_blocks;
  GateRates rates;
  for (int i = 0; i < trials; ++i) {
    const Gate gate = simulate_gate(source, noise, gain, rule);
    rates.regression += gate.verdict == ChangeVerdict::regression;
    rates.undecided += gate.verdict == ChangeVerdict::undecided;
    rates.blocks += static_cast<double>(gate.blocks);
  }
  rates.cleared = trials - rates.regression - rates.undecided;
  for (double* rate : {&rates.regression, &rates.cleared, &rates.undecided, &rates.blocks}) {
    *rate /= trials;
  }
  std::printf(
      "run %.0f %%, iterations %.0f %%, change %+.0f %%, at most %2zu blocks: regression "
      "%5.1f %%, cleared %5.1f %%, undecided %5.1f %%, %.1f blocks\n",
      100 * noise.run, 100 * noise.iteration, 100 * std::expm1(gain), most_blocks,
      100 * rates.regression, 100 * rates.cleared, 100 * rates.undecided, rates.blocks);
  return rates;
}

constexpr Noise usual{0.02, 0.03}, loud{0.05, 0.05};

TEST(GateStudy, FalseAlarmsWithoutAChange) {
  for (const Noise noise : {usual, loud}) {
    EXPECT_LE(study_gates(noise, 0, 5, 2000, 1).regression, 0.01);
    EXPECT_LE(study_gates(noise, 0, 12, 2000, 2).regression, 0.01);
  }
}

TEST(GateStudy, ASlowdownOfFivePercentIsFound) {
  const double gain = std::log(0.95);
  EXPECT_GE(study_gates(usual, gain, 5, 2000, 3).regression, 0.95);
  EXPECT_GE(study_gates(usual, gain, 12, 2000, 4).regression, 0.99);
  EXPECT_GE(study_gates(usual, std::log(0.9), 5, 1000, 5).regression, 0.99);
}

TEST(GateStudy, ASlowdownIsHardlyEverCleared) {
  for (const double change : {0.95, 0.97}) {
    EXPECT_LE(study_gates(usual, std::log(change), 12, 2000, 6).cleared, 0.05) << change;
    EXPECT_LE(study_gates(loud, std::log(change), 12, 2000, 7).cleared, 0.05) << change;
  }
}

/// Blocks that an inconclusive gate asks for; nothing where an alarm or the limit keeps it from it.
std::optional<std::size_t> blocks_asked_for(const Gate& gate, const SequentialRule& rule) {
  const auto judged = judge_evidence(gate.family, rule);
  std::size_t most = 0;
  for (std::size_t i = 0; i < judged.size(); ++i) {
    if (judged[i].control_alarm) return std::nullopt;
    if (judged[i].verdict != ChangeVerdict::undecided) continue;
    const auto more = blocks_to_settle(gate.family[i], judged[i], rule);
    if (!more) return std::nullopt;
    most = std::max(most, *more);
  }
  return gate.blocks + most;
}

struct ForecastRates {
  int asked = 0, settled = 0, settled_by_half = 0;
};

/// Inconclusive gates are run again with the blocks they asked for, and with half as many more.
ForecastRates study_forecast(Noise noise, double gain, std::size_t most_blocks,
                             std::uint64_t seed) {
  constexpr int wanted = 40, most_trials = 1500;
  NoiseSource source(seed);
  SequentialRule rule;
  rule.most_blocks = most_blocks;
  ForecastRates rates;
  std::vector<std::size_t> asked;
  for (int i = 0; i < most_trials && rates.asked < wanted; ++i) {
    const Gate gate = simulate_gate(source, noise, gain, rule);
    if (gate.verdict != ChangeVerdict::undecided) continue;
    const auto blocks = blocks_asked_for(gate, rule);
    if (!blocks) continue;
    const auto settles = [&](std::size_t most) {
      SequentialRule longer = rule;
      longer.most_blocks = most;
      return simulate_gate(source, noise, gain, longer).verdict != ChangeVerdict::undecided;
    };
    asked.push_back(*blocks);
    ++rates.asked;
    rates.settled += settles(*blocks);
    rates.settled_by_half += settles((gate.blocks + *blocks) / 2);
  }
  std::sort(asked.begin(), asked.end());
  std::printf(
      "run %.0f %%, iterations %.0f %%, change %+.0f %%, at most %2zu blocks: %3d asked for %3zu "
      "blocks (median), settled by these %3.0f %%, by half of the further ones %3.0f %%\n",
      100 * noise.run, 100 * noise.iteration, 100 * std::expm1(gain), most_blocks, rates.asked,
      asked.empty() ? 0 : asked[asked.size() / 2], 100.0 * rates.settled / std::max(1, rates.asked),
      100.0 * rates.settled_by_half / std::max(1, rates.asked));
  return rates;
}

TEST(GateStudy, TheBlocksAskedForSettleWhatWasLeftOpen) {
  ForecastRates all;
  constexpr Noise louder{0.1, 0.1};
  for (const Noise noise : {usual, loud, louder}) {
    for (const double change : {1.0, 0.97, 0.95}) {
      for (const std::size_t most_blocks : {5, 8, 12}) {
        const auto rates = study_forecast(noise, std::log(change), most_blocks, 9);
        EXPECT_GE(rates.settled, 0.7 * rates.asked);
        all.asked += rates.asked;
        all.settled += rates.settled;
        all.settled_by_half += rates.settled_by_half;
      }
    }
  }
  std::printf(
      "of %d inconclusive gates %.1f %% are settled by the blocks they ask for, %.1f %% by "
      "half of the further ones\n",
      all.asked, 100.0 * all.settled / all.asked, 100.0 * all.settled_by_half / all.asked);
  EXPECT_GT(all.asked, 700);
  EXPECT_GE(all.settled, 0.9 * all.asked);
  EXPECT_LT(all.settled_by_half, all.settled - 0.1 * all.asked);
}

/// The rule of common tools: iterations of one run per side taken for independent.
TEST(GateStudy, MannWhitneyOnIterationsRaisesFalseAlarms) {
  NoiseSource source(8);
  constexpr int trials = 2000;
  int alarms = 0;
  for (int i = 0; i < trials; ++i) {
    const SimulatedRun base = simulate_run(source, usual, usual.run * source.normal(), 0);
    const SimulatedRun head = simulate_run(source, usual, usual.run * source.normal(), 0);
    double wins = 0;
    for (const double a : head.iterations) {
      for (const double b : base.iterations) wins += a > b ? 1 : 0;
    }
    const double n = iterations_per_run, spread = std::sqrt(n * n * (2 * n + 1) / 12);
    alarms += (wins - n * n / 2) / spread > 2.326;  // slower, one-sided 1 %
  }
  const double rate = alarms / static_cast<double>(trials);
  std::printf("Mann-Whitney on iterations of one run each, no change: %.1f %% false alarms\n",
              100 * rate);
  EXPECT_GT(rate, 0.1);
}

/// Whether any change is reported while the points come in one by one.
bool reports_by(const std::vector<double>& values, std::size_t first, std::size_t last) {
  for (std::size_t n = first; n <= last; ++n) {
    if (!find_change_points(std::span(values).first(n)).empty()) return true;
  }
  return false;
}

struct HistoryRates {
  double false_alarm = 0, found = 0;
};

/// 30 points of history, 20 more that are looked at as they come, then a step and `within` points.
HistoryRates study_history(double spread, double step, std::size_t within, std::uint64_t seed) {
  constexpr int series = 2000;
  constexpr std::size_t before = 50, looks = 20;
  HistoryRates rates;
  for (int i = 0; i < series; ++i) {
    NoiseSource noise(random_bits(seed, i));
    std::vector<double> values = noise.series(before + within, spread);
    for (std::size_t j = before; j < values.size(); ++j) values[j] += std::log(1 - step);
    rates.false_alarm += reports_by(values, before - looks + 1, before);
    rates.found += reports_by(values, before + 1, before + within);
  }
  rates.false_alarm /= series;
  rates.found /= series;
  std::printf(
      "history, noise %.0f %%, step %.0f %%: found within %2zu points %5.1f %%, series with "
      "a false alarm in 20 looks %.1f %%\n",
      100 * spread, 100 * step, within, 100 * rates.found, 100 * rates.false_alarm);
  return rates;
}

TEST(HistoryStudy, AStepOfFivePercentIsFound) {
  const HistoryRates loud_series = study_history(0.03, 0.05, 10, 1);
  EXPECT_GE(loud_series.found, 0.9);
  EXPECT_LE(loud_series.false_alarm, 0.05);
  const HistoryRates quiet_series = study_history(0.02, 0.05, 5, 2);
  EXPECT_GE(quiet_series.found, 0.9);
  EXPECT_LE(quiet_series.false_alarm, 0.05);
}

}  // namespace
}  // namespace heteroperf
