#include "metrics/sequential_test.hpp"

#include <gtest/gtest.h>

#include "tests/unit/metrics/evidence.hpp"

namespace heteroperf {
namespace {

double chance(const Evidence& one, std::size_t blocks, const SequentialRule& rule = {}) {
  return chance_to_settle(one, judged(one, rule), blocks, rule);
}

std::optional<std::size_t> missing(const Evidence& one, const SequentialRule& rule = {}) {
  return blocks_to_settle(one, judged(one, rule), rule);
}

TEST(BlockForecast, IsTheFewestBlocksOfThatChance) {
  int foreseen = 0;
  for (const std::size_t now : {5, 8, 12}) {
    for (const double mean : {-0.08, -0.05, -0.03, 0.0, 0.02}) {
      for (const double spread : {0.02, 0.04, 0.08}) {
        const Evidence one = evidence(mean, spread, now, spread);
        const auto more = missing(one);
        if (!more) continue;
        ++foreseen;
        EXPECT_GE(chance(one, now + *more), forecast_chance) << now << " " << mean << " " << spread;
        if (*more == 1) continue;
        EXPECT_LT(chance(one, now + *more - 1), forecast_chance)
            << now << " " << mean << " " << spread;
      }
    }
  }
  EXPECT_GT(foreseen, 25);
}

TEST(BlockForecast, MoreBlocksSettleMore) {
  const Evidence one = evidence(-0.01, 0.04, 5, 0.04);
  constexpr double of_400_draws = 0.02;
  double before = 0;
  for (std::size_t blocks = 12; blocks <= 200; blocks += 19) {
    const double now = chance(one, blocks);
    EXPECT_GE(now, before - of_400_draws) << blocks;
    before = now;
  }
  EXPECT_GT(before, 0.6);
}

TEST(BlockForecast, NoiseAndNearnessCostBlocks) {
  EXPECT_LT(missing(evidence(0, 0.03, 12, 0.03)).value(),
            missing(evidence(0, 0.05, 12, 0.05)).value());
  EXPECT_LT(missing(evidence(-0.06, 0.04, 8, 0.02)).value(),
            missing(evidence(-0.04, 0.04, 8, 0.02)).value());
  // Seen often, a mean and a spread are trusted.
  EXPECT_LT(chance(evidence(0, 0.03, 5, 0.03), 30), chance(evidence(0, 0.03, 12, 0.03), 30));
}

TEST(BlockForecast, OtherMetricsCostBlocks) {
  const Evidence one = evidence(-0.05, 0.03, 5, 0.01);
  Judgement of_many = judged(one, {});
  const auto alone = blocks_to_settle(one, of_many, {});
  of_many.p_adjusted *= 20;
  EXPECT_GT(blocks_to_settle(one, of_many, {}).value(), alone.value());
}

TEST(BlockForecast, OneLookMayBeOfAnyNumberOfBlocks) {
  SequentialRule once;
  once.most_blocks = once.fewest_blocks;
  const Evidence one = evidence(-0.045, 0.03, 5, 0.01);
  const std::size_t more = missing(one, once).value();
  EXPECT_GE(chance(one, 5 + more, once), forecast_chance);
  // Looks before the last settle gates too.
  EXPECT_GT(chance(one, 60), chance(one, 60, once) - 0.02);
}

TEST(BlockForecast, NothingSettlesWhatLiesAtTheLimit) {
  const SequentialRule rule;
  EXPECT_FALSE(missing(evidence(-rule.margin, 0.01, 100, 0.001)).has_value());
  EXPECT_FALSE(missing(evidence(0, 0.9, 8, 0.9)).has_value());
}

TEST(BlockForecast, WithoutSpreadTheNextLookSettlesOrNone) {
  const SequentialRule rule;
  EXPECT_EQ(blocks_to_settle(evidence(-0.05, 0, 3, 0), {}, rule), 2u);  // five are the fewest
  EXPECT_FALSE(missing(evidence(-rule.margin, 0, 5, 0)).has_value());
}

}  // namespace
}  // namespace heteroperf
