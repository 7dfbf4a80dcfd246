#include "metrics/sequential_test.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "metrics/statistics.hpp"
#include "tests/unit/metrics/noise.hpp"

namespace heteroperf {
namespace {

Evidence evidence(double mean, double spread, std::size_t blocks, double control_spread) {
  const double root = std::sqrt(static_cast<double>(blocks));
  const auto degrees = static_cast<double>(blocks - 1);
  return {{mean, spread / root, degrees}, {0, control_spread / root, degrees}, blocks};
}

Judgement judged(const Evidence& one, const SequentialRule& rule = {}) {
  return judge_evidence(std::span(&one, 1), rule).front();
}

TEST(SequentialTest, SharesAddUpToOne) {
  for (std::size_t most = 5; most < 40; ++most) {
    SequentialRule rule;
    rule.most_blocks = most;
    double sum = 0;
    for (std::size_t n = 5; n <= most; ++n) sum += rule.share(n);
    EXPECT_NEAR(sum, 1, 1e-12) << most;
  }
}

TEST(SequentialTest, VerdictsWhereTheyShouldBe) {
  EXPECT_EQ(judged(evidence(-0.05, 0.005, 5, 0.005)).verdict, ChangeVerdict::regression);
  EXPECT_EQ(judged(evidence(0.05, 0.005, 5, 0.005)).verdict, ChangeVerdict::improvement);
  EXPECT_EQ(judged(evidence(0.001, 0.005, 5, 0.005)).verdict, ChangeVerdict::no_regression);
  EXPECT_EQ(judged(evidence(-0.001, 0.005, 5, 0.005)).verdict, ChangeVerdict::no_regression);
  EXPECT_EQ(judged(evidence(-0.02, 0.005, 5, 0.005)).verdict, ChangeVerdict::undecided);
  EXPECT_EQ(judged(evidence(-0.05, 0.1, 5, 0.1)).verdict, ChangeVerdict::undecided);
}

TEST(SequentialTest, SignificantButBelowTheMarginIsNoRegression) {
  const Judgement one = judged(evidence(-0.005, 0.0005, 5, 0.0005));
  EXPECT_LT(one.p_adjusted, 1e-4);
  EXPECT_EQ(one.verdict, ChangeVerdict::no_regression);
}

TEST(SequentialTest, ANoisyControlClearsNothing) {
  // Half width 0.05 · 2.776 / √5 = 0.062: the limit would be 12 %.
  const Judgement one = judged(evidence(0.0, 0.002, 5, 0.05));
  EXPECT_NEAR(one.limit, 0.1241, 1e-3);
  EXPECT_EQ(one.verdict, ChangeVerdict::undecided);
  EXPECT_EQ(judged(evidence(-0.3, 0.02, 5, 0.05)).verdict, ChangeVerdict::regression);
}

TEST(SequentialTest, AnAlarmOfTheControlTakesEveryVerdict) {
  Evidence one = evidence(-0.2, 0.005, 5, 0.005);
  one.control.mean = 0.1;
  EXPECT_TRUE(judged(one).control_alarm);
  EXPECT_EQ(judged(one).verdict, ChangeVerdict::undecided);
}

TEST(SequentialTest, ForeseenBlocksSettleItAndOneLessDoesNot) {
  RandomStream random(9);
  int settled = 0;
  for (int i = 0; i < 300; ++i) {
    const double spread = 0.005 + 0.05 * random.unit();
    const Evidence now = evidence(0.1 * random.unit() - 0.08, spread, 5, spread);
    const auto more = judged(now).more_blocks;
    if (!more) continue;
    ++settled;
    const std::size_t blocks = 5 + *more;
    SequentialRule there;  // the whole of alpha and miss at that look
    there.fewest_blocks = there.most_blocks = blocks;
    const auto verdict = judged(evidence(now.gain.mean, spread, blocks, spread), there).verdict;
    EXPECT_NE(verdict, ChangeVerdict::undecided) << now.gain.mean << " " << spread;
    if (*more < 2) continue;
    there.fewest_blocks = there.most_blocks = blocks - 1;
    EXPECT_EQ(judged(evidence(now.gain.mean, spread, blocks - 1, spread), there).verdict,
              ChangeVerdict::undecided)
        << now.gain.mean << " " << spread;
  }
  EXPECT_GT(settled, 100);
}

TEST(SequentialTest, NothingIsForeseenAtTheLimitItself) {
  SequentialRule rule;
  EXPECT_FALSE(judged(evidence(-rule.margin, 0.01, 5, 0.001), rule).more_blocks.has_value());
}

TEST(SequentialTest, ManyMetricsRaiseTheBar) {
  std::vector<Evidence> family{evidence(-0.05, 0.011, 5, 0.004)};
  SequentialRule rule;
  rule.alpha = 0.005;
  ASSERT_EQ(judge_evidence(family, rule).front().verdict, ChangeVerdict::regression);
  for (int i = 0; i < 19; ++i) family.push_back(evidence(0.0, 0.004, 5, 0.004));
  EXPECT_EQ(judge_evidence(family, rule).front().verdict, ChangeVerdict::undecided);
}

}  // namespace
}  // namespace heteroperf
