#include "metrics/score.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "metrics/error.hpp"

namespace heteroperf {
namespace {

TEST(Score, OpsPerSecondOfCountsBeyond64Bits) {
  EXPECT_DOUBLE_EQ(ops_per_second({Ops::parse("10000000000000000000000"), Seconds(4)}).value(),
                   2.5e21);
  EXPECT_THROW(ops_per_second({Ops(1), Seconds(0)}), Error);
}

// 100 operations in 1 s and 100 in 9 s: 20 per second, not the mean of 100 and 11.1.
TEST(Score, SuiteIsTotalOverTotal) {
  const std::vector<WindowTotal> totals{{Ops(100), Seconds(1)}, {Ops(100), Seconds(9)}};
  EXPECT_DOUBLE_EQ(suite_ops_per_second(totals).value(), 20);
  EXPECT_THROW(suite_ops_per_second({}), Error);
}

// The factors that AIPerf's own tables use.
TEST(Score, RegulatedFactors) {
  const OpsPerSecond one(1);
  EXPECT_NEAR(regulated_score(one, 0.35)->value(), 1.0498, 5e-5);
  EXPECT_NEAR(regulated_score(one, 0.30)->value(), 1.2040, 5e-5);
  EXPECT_NEAR(regulated_score(one, 0.25)->value(), 1.3863, 5e-5);
  EXPECT_NEAR(regulated_score(one, 0.24)->value(), 1.4271, 5e-5);
  EXPECT_NEAR(regulated_score(OpsPerSecond(1e12), 0.5)->value(), 1e12 * std::log(2.0), 1);
}

TEST(Score, RegulatedAtTheEnds) {
  EXPECT_EQ(regulated_score(OpsPerSecond(5), 1)->value(), 0);
  EXPECT_FALSE(std::signbit(regulated_score(OpsPerSecond(5), 1)->value()));
  EXPECT_FALSE(regulated_score(OpsPerSecond(5), 0));
  EXPECT_THROW(regulated_score(OpsPerSecond(5), -0.1), Error);
  EXPECT_THROW(regulated_score(OpsPerSecond(5), 1.1), Error);
  EXPECT_THROW(regulated_score(OpsPerSecond(5), std::nan("")), Error);
}

}  // namespace
}  // namespace heteroperf
