#include "metrics/score.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "metrics/base/error.hpp"

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

TEST(Score, SpeedRatioIsAgainstTheSumOfTheClasses) {
  EXPECT_EQ(heterogeneous_speed_ratio(9, 4 + 8), 0.75);
  EXPECT_FALSE(heterogeneous_speed_ratio(9, 0).has_value());
}

TEST(Score, PortabilityIsTheHarmonicMeanAndNothingWithoutAnOperator) {
  using Efficiencies = std::vector<std::optional<double>>;
  EXPECT_DOUBLE_EQ(performance_portability(Efficiencies{0.5, 1.0}).value(), 2 / 3.0);
  EXPECT_EQ(performance_portability(Efficiencies{0.5, std::nullopt, 1.0}), 0.0);
  EXPECT_FALSE(performance_portability(Efficiencies{}).has_value());
}

TEST(Score, RatesAreOfTheTurnsThatAllPassesHad) {
  const std::vector<TimedPass> passes{{2, {0.25, 0.5, 1}}, {1, {0.5, 1}}};
  EXPECT_EQ(micro_batch_rates(passes), (std::vector<double>{1, 0.5}));
  EXPECT_TRUE(micro_batch_rates({}).empty());
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

// Wilson's interval of 20 of 100, as tables have it, and its closed forms at the ends.
TEST(Score, ErrorIntervals) {
  const Interval twenty = error_interval(20, 100);
  EXPECT_NEAR(twenty.low, 0.1333669, 1e-7);
  EXPECT_NEAR(twenty.high, 0.2888292, 1e-7);
  const double square = 1.959963984540054 * 1.959963984540054;
  EXPECT_EQ(error_interval(0, 50).low, 0);
  EXPECT_NEAR(error_interval(0, 50).high, square / (50 + square), 1e-15);
  EXPECT_EQ(error_interval(50, 50).high, 1);
  EXPECT_NEAR(error_interval(50, 50).low, 50 / (50 + square), 1e-15);
  // What `enough_wrong_answers` promises: a standard error, half of the interval over 1.96, of 10
  // %.
  const Interval enough = error_interval(enough_wrong_answers, 100 * enough_wrong_answers);
  EXPECT_NEAR((enough.high - enough.low) / 2 / 1.96 / 0.01, 0.1, 0.002);
  EXPECT_THROW(error_interval(0, 0), Error);
  EXPECT_THROW(error_interval(3, 2), Error);
}

TEST(Score, RegulatedAtTheEnds) {
  EXPECT_EQ(regulated_score(OpsPerSecond(5), 1)->value(), 0);
  EXPECT_FALSE(std::signbit(regulated_score(OpsPerSecond(5), 1)->value()));
  EXPECT_FALSE(regulated_score(OpsPerSecond(5), 0));
  EXPECT_THROW(regulated_score(OpsPerSecond(5), -0.1), Error);
  EXPECT_THROW(regulated_score(OpsPerSecond(5), 1.1), Error);
  EXPECT_THROW(regulated_score(OpsPerSecond(5), std::nan("")), Error);
}

TEST(Score, AFinalEvaluationGoesOnToErrorsOfClassifiersOnRealDevices) {
  FinalEvaluation rule{.classifier = true, .asked_samples = 100};
  EXPECT_TRUE(rule.goes_on_to_errors());
  EXPECT_EQ(rule.most_generated_samples(), most_generated_answers);
  rule.asked_samples = 2 * most_generated_answers;
  EXPECT_EQ(rule.most_generated_samples(), rule.asked_samples);
  for (const FinalEvaluation& short_one :
       {FinalEvaluation{.classifier = false, .asked_samples = 100},
        FinalEvaluation{.classifier = true, .quick = true, .asked_samples = 100},
        FinalEvaluation{.classifier = true, .emulated = true, .asked_samples = 100}}) {
    EXPECT_FALSE(short_one.goes_on_to_errors());
    EXPECT_EQ(short_one.most_generated_samples(), 100u);
  }
}

}  // namespace
}  // namespace heteroperf
