#include "metrics/base/random.hpp"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace heteroperf {
namespace {

/// Σ (observed − expected)² / expected over equally likely cells.
double chi_square(const std::vector<int>& counts, double expected) {
  double sum = 0;
  for (int count : counts) sum += (count - expected) * (count - expected) / expected;
  return sum;
}

// Stored results depend on these bits: they must be the same on every machine and for ever.
TEST(Random, BitsAreFixed) {
  EXPECT_EQ(mix64(0), 0xe220a8397b1dcdafULL);  // first output of SplitMix64 seeded with 0
  EXPECT_EQ(random_bits(1, 2, 3), random_bits(1, 2, 3));
  EXPECT_NE(random_bits(1, 2, 3), random_bits(1, 3, 2));
  static_assert(random_bits(5, 6) == mix64(mix64(5) ^ 6));
}

TEST(RandomStream, BelowIsUniform) {
  // 99.9 % quantiles of chi-square with bound − 1 degrees of freedom.
  const struct {
    std::uint64_t bound;
    double limit;
  } cases[] = {{2, 10.83}, {3, 13.82}, {7, 22.46}, {10, 27.88}, {100, 148.2}};
  for (const auto& [bound, limit] : cases) {
    RandomStream random(bound);
    std::vector<int> counts(bound, 0);
    const int draws = 20000;
    for (int i = 0; i < draws; ++i) {
      const std::uint64_t value = random.below(bound);
      ASSERT_LT(value, bound);
      ++counts[value];
    }
    EXPECT_LT(chi_square(counts, static_cast<double>(draws) / static_cast<double>(bound)), limit)
        << bound;
  }
}

// With bound = 3/4 · 2^64 a plain modulo or an unrejected product would give one third of the range
// twice the weight of the others.
TEST(RandomStream, BelowRejectsTheBiasedPartOfLargeBounds) {
  const std::uint64_t third = std::uint64_t{1} << 62, bound = 3 * third;
  RandomStream random(9);
  std::vector<int> low_bits(3, 0), thirds(3, 0);
  for (int i = 0; i < 30000; ++i) {
    const std::uint64_t value = random.below(bound);
    ASSERT_LT(value, bound);
    ++thirds[value / third];
    ++low_bits[value % 3];
  }
  EXPECT_LT(chi_square(thirds, 10000), 13.82);
  EXPECT_LT(chi_square(low_bits, 10000), 13.82);
}

TEST(RandomStream, StreamsOfNeighbouringSeedsShareNothing) {
  std::set<std::uint64_t> seen;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    RandomStream random(seed);
    for (int i = 0; i < 100; ++i) seen.insert(random.bits());
  }
  EXPECT_EQ(seen.size(), 10000u);
}

TEST(RandomStream, UnitStaysBelowOne) {
  EXPECT_LT(to_unit(~std::uint64_t{0}), 1.0);
  EXPECT_EQ(to_unit(0), 0.0);
  RandomStream random(4);
  double sum = 0;
  for (int i = 0; i < 10000; ++i) sum += random.unit();
  EXPECT_NEAR(sum / 10000, 0.5, 4 * 0.2887 / 100);
}

}  // namespace
}  // namespace heteroperf
