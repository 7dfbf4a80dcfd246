#include "runners/cluster/layout.hpp"

#include <gtest/gtest.h>

#include "metrics/base/error.hpp"

namespace heteroperf {
namespace {

std::vector<RankId> ids(const std::vector<int>& values) {
  std::vector<RankId> ranks;
  for (const int value : values) ranks.emplace_back(value);
  return ranks;
}

TEST(Layout, TilesAreNumberedRowMajor) {
  const Layout layout({4, 6}, {{0, 2, 4}, {0, 1, 3, 6}},
                      {ids({10}), ids({11}), ids({12}), ids({20}), ids({21}), ids({22})});
  ASSERT_EQ(layout.tiles(), 6u);
  EXPECT_EQ(to_string(layout.box(4)), "[2,4)x[1,3)");
  EXPECT_EQ(layout.box(4).count(), 4);
  EXPECT_EQ(layout.holders(4), ids({21}));
}

TEST(Layout, ReplicasHoldTheSameTile) {
  const Layout layout({4, 6}, {{0, 4}, {0, 2, 4, 6}},
                      {ids({10, 20}), ids({21, 11}), ids({12, 22})});
  EXPECT_EQ(layout.holders(1), ids({11, 21}));
  EXPECT_EQ(layout.count(RankId(21)), 8);
  EXPECT_EQ(layout.count(RankId(7)), 0);
  EXPECT_EQ(layout.count(), 24);
  EXPECT_EQ(layout.ranks(), ids({10, 11, 12, 20, 21, 22}));
}

TEST(Layout, ARankMayHoldSeveralTiles) {
  const Layout zigzag({8}, {{0, 2, 4, 6, 8}}, {ids({0}), ids({1}), ids({1}), ids({0})});
  EXPECT_EQ(zigzag.tiles_of(RankId(0)), (std::vector<std::size_t>{0, 3}));
  EXPECT_EQ(zigzag.count(RankId(1)), 4);
}

TEST(Layout, ComparesByValueWhateverTheOrderOfHolders) {
  const Layout a({4}, {{0, 4}}, {ids({2, 0, 1})});
  EXPECT_EQ(a, Layout({4}, {{0, 4}}, {ids({0, 1, 2})}));
  EXPECT_NE(a, Layout({4}, {{0, 4}}, {ids({0, 1})}));
  EXPECT_NE(a, Layout({4}, {{0, 0, 4}}, {{}, ids({0, 1, 2})}));
}

TEST(Layout, ScalarsAndEmptyTensors) {
  EXPECT_EQ(to_string(Layout().box(0)), "scalar");
  EXPECT_EQ(Layout().holders(0), ids({0}));
  EXPECT_EQ(Layout().count(), 1);
  EXPECT_EQ(Layout({0, 3}, {{0, 0}, {0, 3}}, {{}}).count(), 0);
}

TEST(Layout, WhatIsNoLayoutIsABug) {
  const auto make = [](const Layout::Shape& shape,
                       std::vector<std::vector<std::int64_t>> boundaries,
                       std::vector<std::vector<RankId>> holders) {
    Layout(shape, std::move(boundaries), std::move(holders));
  };
  EXPECT_THROW(make({4, 6}, {{1, 4}, {0, 6}}, {ids({0})}), Error);
  EXPECT_THROW(make({4, 6}, {{0, 3}, {0, 6}}, {ids({0})}), Error);
  EXPECT_THROW(make({4}, {{0, 3, 2, 4}}, {ids({0}), ids({0}), ids({0})}), Error);
  EXPECT_THROW(make({4}, {{0}}, {}), Error);
  EXPECT_THROW(make({4}, {{0, 4}, {0, 1}}, {ids({0})}), Error);
  EXPECT_THROW(make({4}, {{0, 2, 4}}, {ids({0})}), Error);
  EXPECT_THROW(make({4}, {{0, 2, 4}}, {ids({3, 3}), ids({0})}), Error);
  EXPECT_THROW(make({4}, {{0, 2, 4}}, {ids({3}), {}}), Error);
  EXPECT_THROW(make({4}, {{0, 4}}, {ids({-1})}), Error);
  EXPECT_THROW(make({-4}, {{0, -4}}, {ids({0})}), Error);
  EXPECT_THROW(make(Layout::Shape(7, 1), {7, {0, 1}}, {ids({0})}), Error);
  const std::int64_t huge = std::int64_t{1} << 40;
  EXPECT_THROW(make({huge, huge}, {{0, huge}, {0, huge}}, {ids({0})}), Error);
}

}  // namespace
}  // namespace heteroperf
