#include "runners/comm/slice.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "metrics/base/random.hpp"

namespace heteroperf {
namespace {

TEST(Slice, EvenSlicesFollowEachOtherAndBeginAtUnits) {
  RandomStream random(3);
  for (int round = 0; round < 500; ++round) {
    const std::size_t count = random.below(3000), slices = 1 + random.below(9),
                      unit = 1 + random.below(64);
    std::size_t end = 0;
    for (std::size_t i = 0; i < slices; ++i) {
      const Slice slice = even_slice(count, i, slices, unit);
      EXPECT_EQ(slice.begin, end);
      EXPECT_TRUE(slice.begin % unit == 0 || slice.begin == count);
      EXPECT_LE(slice.count, (count / unit / slices + 2) * unit);
      end = slice.end();
    }
    EXPECT_EQ(end, count);
  }
}

TEST(Slice, SegmentsEndWithTheSlice) {
  const Slice whole{7, 10};
  EXPECT_EQ(segment_of(whole, 0, 4).begin, 7U);
  EXPECT_EQ(segment_of(whole, 2, 4).begin, 15U);
  EXPECT_EQ(segment_of(whole, 2, 4).count, 2U);
  EXPECT_EQ(segment_of(whole, 3, 4).count, 0U);
  EXPECT_EQ(segment_of(whole, 3, 4).begin, 17U);
}

TEST(Counts, BlocksFollowEachOther) {
  const std::vector<std::size_t> counts{3, 0, 5};
  EXPECT_EQ(total_of(counts), 8U);
  EXPECT_EQ(largest_of(counts), 5U);
  std::size_t end = 0, visited = 0;
  for_each_block(counts, [&](std::size_t rank, Slice block) {
    EXPECT_EQ(rank, visited++);
    EXPECT_EQ(block.begin, end);
    EXPECT_EQ(block.count, counts[rank]);
    EXPECT_EQ(block_of(counts, rank).begin, block.begin);
    EXPECT_EQ(block_of(counts, rank).count, block.count);
    end = block.end();
  });
  EXPECT_EQ(visited, counts.size());
}

TEST(Counts, EqualOnesAreKnown) {
  EXPECT_TRUE(are_equal(std::vector<std::size_t>{}));
  EXPECT_TRUE(are_equal(std::vector<std::size_t>{4}));
  EXPECT_TRUE(are_equal(std::vector<std::size_t>{0, 0, 0}));
  EXPECT_FALSE(are_equal(std::vector<std::size_t>{4, 4, 3}));
  EXPECT_FALSE(are_equal(std::vector<std::size_t>{1, 4, 4}));
}

}  // namespace
}  // namespace heteroperf
