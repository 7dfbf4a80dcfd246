#include "metrics/statistics.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "metrics/base/error.hpp"
#include "metrics/base/random.hpp"

namespace heteroperf {
namespace {

using Values = std::vector<double>;

TEST(Statistics, WorkedValues) {
  const Values values{4, 1, 3, 2};
  EXPECT_EQ(mean(values), 2.5);
  EXPECT_EQ(median(values), 2.5);
  EXPECT_EQ(median(Values{5, 1, 9}), 5);
  EXPECT_DOUBLE_EQ(standard_deviation(values), std::sqrt(5.0 / 3.0));
  EXPECT_EQ(standard_deviation(Values{7}), 0);
}

// R: quantile(c(10, 20, 30, 40, 50, 60), c(.05, .25, .9), type = 7) is 12.5, 22.5, 55.
TEST(Statistics, QuantileIsType7) {
  const Values values{60, 10, 50, 20, 40, 30};
  EXPECT_DOUBLE_EQ(quantile(values, 0.05), 12.5);
  EXPECT_DOUBLE_EQ(quantile(values, 0.25), 22.5);
  EXPECT_DOUBLE_EQ(quantile(values, 0.9), 55);
  EXPECT_EQ(quantile(values, 0), 10);
  EXPECT_EQ(quantile(values, 1), 60);
}

TEST(Statistics, QuantileAgreesWithASortedSearchOnRandomSamples) {
  RandomStream random(3);
  for (int round = 0; round < 200; ++round) {
    Values values(1 + random.below(40));
    for (double& value : values) value = static_cast<double>(random.below(10));  // many ties
    const double p = random.unit();
    Values sorted = values;
    std::sort(sorted.begin(), sorted.end());
    const double position = p * static_cast<double>(sorted.size() - 1);
    const auto below = static_cast<std::size_t>(std::floor(position));
    const auto above = static_cast<std::size_t>(std::ceil(position));
    const double expected =
        sorted[below] + (position - static_cast<double>(below)) * (sorted[above] - sorted[below]);
    EXPECT_DOUBLE_EQ(quantile(values, p), expected);
  }
}

TEST(Statistics, EmptyOrMeaninglessInputIsABug) {
  EXPECT_THROW(mean(Values{}), Error);
  EXPECT_THROW(median(Values{}), Error);
  EXPECT_THROW(quantile(Values{1}, 1.5), Error);
  EXPECT_THROW(quantile(Values{1}, std::nan("")), Error);
}

TEST(NaturalLog, AgreesWithTheLibraryToTwoUnitsInTheLastPlace) {
  RandomStream random(5);
  for (int i = 0; i < 20000; ++i) {
    const int exponent = static_cast<int>(random.below(600)) - 300;
    const double x = std::ldexp(0.5 + random.unit(), i % 4 == 0 ? 0 : exponent);
    const double expected = std::log(x);
    EXPECT_NEAR(natural_log(x), expected, 2 * std::abs(std::nextafter(expected, 1e300) - expected));
  }
}

TEST(NaturalLog, SpecialValues) {
  EXPECT_EQ(natural_log(1), 0);
  EXPECT_DOUBLE_EQ(natural_log(2), 0.69314718055994531);
  EXPECT_NEAR(natural_log(5e-324), -744.44007192138126, 1e-10);
  EXPECT_THROW(natural_log(0), Error);
  EXPECT_THROW(natural_log(-1), Error);
  EXPECT_THROW(natural_log(INFINITY), Error);
  EXPECT_THROW(natural_log(std::nan("")), Error);
}

TEST(RelativeDifference, IsByTheReference) {
  EXPECT_EQ(relative_difference(1, 1), 0.0);
  EXPECT_EQ(relative_difference(3, 2), 0.5);
  EXPECT_EQ(relative_difference(2, -2), 2.0);
  EXPECT_EQ(relative_difference(0, 0), 0.0);
  EXPECT_TRUE(std::isinf(relative_difference(1, 0)));
  EXPECT_TRUE(std::isinf(relative_difference(NAN, NAN)));
}

}  // namespace
}  // namespace heteroperf
