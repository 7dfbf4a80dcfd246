#include "metrics/sequential_test.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "metrics/statistics.hpp"
#include "tests/unit/metrics/evidence.hpp"
#include "tests/unit/metrics/noise.hpp"

namespace heteroperf {
namespace {

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
