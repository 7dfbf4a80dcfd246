#include "metrics/change_points.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/metrics/noise.hpp"

namespace heteroperf {
namespace {

std::vector<double> steps(const std::vector<std::pair<std::size_t, double>>& levels, double spread,
                          std::uint64_t seed) {
  NoiseSource noise(seed);
  std::vector<double> values;
  for (const auto& [count, level] : levels) {
    for (std::size_t i = 0; i < count; ++i) values.push_back(level + spread * noise.normal());
  }
  return values;
}

TEST(ChangePoints, NoneInShortOrConstantSeries) {
  EXPECT_TRUE(find_change_points({}).empty());
  for (std::size_t n = 1; n < 60; ++n) {
    EXPECT_TRUE(find_change_points(std::vector<double>(n, 3.25)).empty()) << n;
  }
}

TEST(ChangePoints, AStepWithoutNoiseIsFoundExactly) {
  for (std::size_t at = 2; at <= 18; ++at) {
    std::vector<double> values(20, 1.0);
    std::fill(values.begin() + static_cast<std::ptrdiff_t>(at), values.end(), 2.0);
    const auto found = find_change_points(values);
    ASSERT_EQ(found.size(), 1u) << at;
    EXPECT_EQ(found[0].index, at);
    EXPECT_NEAR(found[0].before, 1.0, 1e-12);
    EXPECT_NEAR(found[0].after, 2.0, 1e-12);
    EXPECT_LT(found[0].p, 1e-100);
  }
}

TEST(ChangePoints, SeveralChangesAndShortPlateaus) {
  const auto found =
      find_change_points(steps({{20, 0.0}, {6, 0.2}, {20, 0.0}, {15, -0.1}}, 0.02, 4));
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].index, 20u);
  EXPECT_EQ(found[1].index, 26u);
  EXPECT_EQ(found[2].index, 46u);
}

TEST(ChangePoints, OneWildPointIsNoChange) {
  int reported = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    std::vector<double> values = steps({{30, 0.0}}, 0.02, seed);
    values[10 + seed % 10] += 0.3;
    reported += !find_change_points(values).empty();
  }
  EXPECT_LE(reported, 5);
}

TEST(ChangePoints, OrderScaleAndOffsetDoNotMatter) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    std::vector<double> values = steps({{20, 0.0}, {20, 0.08}}, 0.03, seed);
    const auto plain = find_change_points(values);
    EXPECT_EQ(find_change_points(values).size(), plain.size());  // no state
    std::vector<double> scaled = values;
    for (double& value : scaled) value = 4 * value + 1024;
    const auto moved = find_change_points(scaled);
    ASSERT_EQ(moved.size(), plain.size());
    for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_EQ(moved[i].index, plain[i].index);
    std::reverse(values.begin(), values.end());
    const auto reversed = find_change_points(values);
    ASSERT_EQ(reversed.size(), plain.size());
    for (std::size_t i = 0; i < plain.size(); ++i) {
      EXPECT_EQ(reversed[plain.size() - 1 - i].index, values.size() - plain[i].index);
    }
  }
}

}  // namespace
}  // namespace heteroperf
