#include "metrics/log_ratio.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "metrics/base/error.hpp"
#include "metrics/statistics.hpp"
#include "tests/unit/metrics/noise.hpp"

namespace heteroperf {
namespace {

TEST(StudentT, TableOfCriticalValues) {
  // Abramowitz and Stegun, table 26.10; two-sided.
  EXPECT_NEAR(student_t_quantile(0.95, 1), 12.706, 5e-4);
  EXPECT_NEAR(student_t_quantile(0.95, 4), 2.776, 5e-4);
  EXPECT_NEAR(student_t_quantile(0.99, 4), 4.604, 5e-4);
  EXPECT_NEAR(student_t_quantile(0.99, 9), 3.250, 5e-4);
  EXPECT_NEAR(student_t_quantile(0.95, 30), 2.042, 5e-4);
  EXPECT_NEAR(student_t_quantile(0.95, 1e6), 1.959966, 5e-6);
}

TEST(StudentT, ClosedFormsOfOneAndTwoDegrees) {
  for (const double t : {1e-6, 0.3, 1.0, 2.5, 40.0, 1e5}) {
    const double one = 1 - 2 / std::numbers::pi * std::atan(t);
    EXPECT_NEAR(student_t_two_sided(t, 1), one, 1e-13) << t;
    const double two = 1 - t / std::sqrt(2 + t * t);
    EXPECT_NEAR(student_t_two_sided(t, 2), two, 1e-13) << t;
    EXPECT_EQ(student_t_two_sided(t, 2), student_t_two_sided(-t, 2));
  }
  // For large t the chance goes as 1 / t² exactly enough: digits must survive.
  EXPECT_NEAR(student_t_two_sided(1e8, 2) * 1e16, 1, 1e-9);
}

TEST(StudentT, EndsOfTheRange) {
  EXPECT_EQ(student_t_two_sided(0, 5), 1);
  EXPECT_EQ(student_t_two_sided(INFINITY, 5), 0);
  EXPECT_EQ(student_t_two_sided(1e200, 5), 0);
  EXPECT_THROW(student_t_two_sided(1, 0), Error);
  EXPECT_THROW(student_t_quantile(1, 3), Error);
}

TEST(StudentT, QuantileIsTheInverse) {
  RandomStream random(7);
  for (int i = 0; i < 200; ++i) {
    const double degrees = 1 + 60 * random.unit(), coverage = 0.01 + 0.98 * random.unit();
    const double t = student_t_quantile(coverage, degrees);
    EXPECT_NEAR(student_t_two_sided(t, degrees), 1 - coverage, 1e-9) << degrees << " " << coverage;
  }
}

TEST(LogRatio, PairedIsStudentsT) {
  // Student's own sleep data (1908): t = 4.0621 with 9 degrees, p = 0.00283.
  const std::vector<double> sleep{1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4};
  const LogRatio found = paired_log_ratio(sleep);
  EXPECT_NEAR(found.mean / found.standard_error, 4.0621, 1e-4);
  EXPECT_EQ(found.degrees, 9);
  EXPECT_NEAR(found.p_value(), 0.00283, 1e-5);
  EXPECT_NEAR(found.interval(0.95).low, 0.7001, 1e-4);
  EXPECT_NEAR(found.interval(0.95).high, 2.4599, 1e-4);
}

TEST(LogRatio, UnpairedIsWelchsT) {
  // The same data as two groups: t = -1.8608, 17.776 degrees, p = 0.07939.
  const std::vector<double> a{0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0};
  const std::vector<double> b{1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4};
  const LogRatio found = unpaired_log_ratio(a, b);
  EXPECT_NEAR(found.mean / found.standard_error, 1.8608, 1e-4);
  EXPECT_NEAR(found.degrees, 17.776, 1e-3);
  EXPECT_NEAR(found.p_value(), 0.07939, 1e-5);
}

TEST(LogRatio, WithoutSpread) {
  const std::vector<double> equal(5, 0.0), shifted(5, 0.25);
  EXPECT_EQ(paired_log_ratio(equal).p_value(), 1);
  EXPECT_EQ(paired_log_ratio(shifted).p_value(), 0);
  EXPECT_EQ(unpaired_log_ratio(equal, shifted).p_value(), 0);
  EXPECT_EQ(paired_log_ratio(shifted).interval(0.95), (Interval{0.25, 0.25}));
  EXPECT_THROW(paired_log_ratio(std::vector<double>{1.0}), Error);
}

TEST(LogRatio, IntervalCoversAndPValueIsUniformWithoutADifference) {
  NoiseSource noise(11);
  constexpr int trials = 4000;
  int covered = 0, below = 0;
  for (int i = 0; i < trials; ++i) {
    const LogRatio found = paired_log_ratio(noise.series(5, 0.3));
    const Interval interval = found.interval(0.95);
    covered += interval.low <= 0 && 0 <= interval.high;
    below += found.p_value() < 0.01;
  }
  EXPECT_NEAR(covered / static_cast<double>(trials), 0.95, 0.012);
  EXPECT_NEAR(below / static_cast<double>(trials), 0.01, 0.005);
}

TEST(BenjaminiHochberg, ExampleOfThePaper) {
  // Benjamini and Hochberg (1995), §3.2: at 5 % the first four of fifteen are rejected.
  const std::vector<double> p{0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344,
                              0.0459, 0.3240, 0.4262, 0.5719, 0.6528, 0.7590, 1.0};
  const std::vector<double> adjusted = benjamini_hochberg(p);
  EXPECT_EQ(std::count_if(adjusted.begin(), adjusted.end(), [](double q) { return q <= 0.05; }), 4);
  EXPECT_NEAR(adjusted[0], 0.0015, 1e-12);
  EXPECT_NEAR(adjusted[3], 0.035625, 1e-12);
}

TEST(BenjaminiHochberg, Properties) {
  RandomStream random(3);
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<double> p(1 + random.below(12));
    for (double& one : p) one = random.unit();
    const std::vector<double> adjusted = benjamini_hochberg(p);
    for (std::size_t i = 0; i < p.size(); ++i) {
      EXPECT_GE(adjusted[i], p[i]);
      EXPECT_LE(adjusted[i], std::min(1.0, p[i] * static_cast<double>(p.size())));
      for (std::size_t j = 0; j < p.size(); ++j) {
        EXPECT_TRUE(p[i] > p[j] || adjusted[i] <= adjusted[j]);
      }
    }
  }
  EXPECT_TRUE(benjamini_hochberg({}).empty());
}

TEST(AbbaBlock, DriftFallsOutAndTheControlSeesNoDifference) {
  NoiseSource noise(5);
  for (int i = 0; i < 100; ++i) {
    const double level = noise.normal(), drift = noise.normal(), bend = noise.normal();
    const double gain = noise.normal();
    const auto at = [&](int run) { return level + drift * run; };
    const AbbaBlock linear{at(0), at(1) + gain, at(2) + gain, at(3)};
    EXPECT_NEAR(linear.effect(), gain, 1e-12);
    EXPECT_NEAR(linear.control(), 0, 1e-12);
    const auto bent = [&](int run) { return at(run) + bend * run * run; };
    EXPECT_NEAR((AbbaBlock{bent(0), bent(1) + gain, bent(2) + gain, bent(3)}.control()), 0, 1e-11);
  }
}

TEST(AbbaBlock, EffectAndControlHaveTheSpreadOfARun) {
  NoiseSource noise(6);
  std::vector<double> effects, controls;
  double product = 0;
  for (int i = 0; i < 20000; ++i) {
    const std::vector<double> runs = noise.series(4, 0.1);
    const AbbaBlock block{runs[0], runs[1], runs[2], runs[3]};
    effects.push_back(block.effect());
    controls.push_back(block.control());
    product += effects.back() * controls.back();
  }
  EXPECT_NEAR(standard_deviation(effects), 0.1, 0.002);
  EXPECT_NEAR(standard_deviation(controls), 0.1, 0.002);
  EXPECT_NEAR(product / 20000, 0, 4e-4);  // independent of each other
}

}  // namespace
}  // namespace heteroperf
