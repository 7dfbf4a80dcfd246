#include "workloads/data/sample_order.hpp"

#include <gtest/gtest.h>

#include <array>
#include <set>
#include <vector>

#include "workloads/data/data_source.hpp"

namespace heteroperf {
namespace {

TEST(KeyedPermutation, IsABijectionForEverySize) {
  for (std::uint64_t size = 1; size <= 300; ++size) {
    const KeyedPermutation permutation(random_bits(1, size), size);
    std::set<std::uint64_t> images;
    for (std::uint64_t i = 0; i < size; ++i) images.insert(permutation(i));
    ASSERT_EQ(images.size(), size);
    ASSERT_LT(*images.rbegin(), size);
  }
}

TEST(KeyedPermutation, HugeDomainsStayInside) {
  const std::uint64_t size = (std::uint64_t{1} << 40) + 12345;
  const KeyedPermutation permutation(7, size);
  std::set<std::uint64_t> images;
  for (std::uint64_t i = 0; i < 10000; ++i) images.insert(permutation(i));
  EXPECT_EQ(images.size(), 10000u);
  EXPECT_LT(*images.rbegin(), size);
  EXPECT_GT(*images.rbegin(), size / 2);
  EXPECT_THROW(permutation(size), Error);
  EXPECT_THROW(KeyedPermutation(1, 0), Error);
}

TEST(ShuffledIndex, EachEpochIsAnotherPermutation) {
  const std::uint64_t size = 1000;
  std::vector<std::vector<std::uint64_t>> epochs(3);
  for (std::uint64_t position = 0; position < 3 * size; ++position) {
    epochs[position / size].push_back(shuffled_index(5, size, position));
  }
  for (const auto& epoch : epochs) {
    EXPECT_EQ(std::set<std::uint64_t>(epoch.begin(), epoch.end()).size(), size);
  }
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_NE(epochs[1], epochs[2]);
  EXPECT_NE(shuffled_index(5, 1u << 20, 0), shuffled_index(6, 1u << 20, 0));
}

TEST(ShuffledIndex, EveryIndexIsAsLikelyInEveryPlace) {
  constexpr std::uint64_t size = 11;
  constexpr int rounds = 20000;
  std::array<std::array<int, size>, size> counts{};
  for (std::uint64_t seed = 0; seed < rounds; ++seed) {
    for (std::uint64_t p = 0; p < size; ++p) ++counts[p][shuffled_index(seed, size, p)];
  }
  const double expected = rounds / static_cast<double>(size);
  double sum = 0;
  for (const auto& row : counts) {
    for (int count : row) sum += (count - expected) * (count - expected) / expected;
  }
  // Rows and columns have fixed sums, which leaves 10 · 10 degrees of freedom (99.9 %: 149.4).
  EXPECT_LT(sum * (size - 1) / size, 149.4);
}

// Neighbours must not stay neighbours: in a random order a step of exactly one is rare.
TEST(ShuffledIndex, LeavesNoRunsOfNeighbours) {
  const std::uint64_t size = 10000;
  int neighbours = 0;
  for (std::uint64_t p = 1; p < size; ++p) {
    neighbours += shuffled_index(3, size, p) == shuffled_index(3, size, p - 1) + 1;
  }
  EXPECT_LT(neighbours, 8);  // Poisson with mean 1
}

}  // namespace
}  // namespace heteroperf
