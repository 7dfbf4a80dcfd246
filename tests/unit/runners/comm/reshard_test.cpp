#include "runners/comm/reshard/reshard_plan.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "metrics/base/error.hpp"
#include "runners/comm/reshard/reshard.hpp"
#include "tests/unit/runners/comm/reshard_cases.hpp"
#include "tests/unit/runners/comm/reshard_checks.hpp"

namespace heteroperf {
namespace {

void expect_moves_indices(const ReshardPlan& plan, int ranks) {
  const std::vector<float> tensor = linear_indices(plan.from);
  EXPECT_EQ(play(plan, spread(tensor, plan.from, ranks)), spread(tensor, plan.to, ranks));
}

void expect_reshards(const Layout& from, const Layout& to, const ReshardConfig& config, int ranks) {
  SCOPED_TRACE(text_of(from) + "\n  to " + text_of(to));
  const ReshardPlan plan = plan_reshard(from, to, config);
  expect_sound(plan, ranks);
  expect_moves_indices(plan, ranks);
}

TEST(Reshard, CoprimeEvenCutsMakeTheLeastBoxes) {
  for (const auto& [n, m] : {std::pair(3, 5), {4, 6}, {8, 8}, {7, 1}, {1, 7}, {12, 9}}) {
    const Layout from = even_cut({n * m * 4}, 0, 0, n), to = even_cut({n * m * 4}, 0, n, m);
    const ReshardPlan plan = plan_reshard(from, to, fine_config());
    EXPECT_EQ(plan.pieces.size(), static_cast<std::size_t>(n + m - std::gcd(n, m)));
    EXPECT_EQ(moved(plan).value(), static_cast<std::uint64_t>(n * m * 4 * 4));
    expect_reshards(from, to, fine_config(), n + m);
  }
}

TEST(Reshard, DisjointRanksMoveTheTensorOnce) {
  const ReshardPlan plan =
      plan_reshard(even_cut({30, 4}, 0, 0, 3), even_cut({30, 4}, 1, 3, 2), fine_config());
  EXPECT_EQ(moved(plan).value(), 30u * 4 * 4);
  EXPECT_EQ(plan.messages.size(), 6u);
  expect_sound(plan, 5);
  expect_moves_indices(plan, 5);
}

TEST(Reshard, ReplicasAreForwarded) {
  const ReshardPlan plan =
      plan_reshard(even_cut({64}, 0, 0, 2), replicated({64}, 2, 4), fine_config());
  EXPECT_EQ(moved(plan).value(), 4 * 64u * 4);
  EXPECT_GT(plan.rounds[static_cast<std::size_t>(ReshardStage::forward)], 0);
  // Every replica brings in its quarter.
  std::map<RankId, std::uint64_t> brought;
  for (const ReshardMessage& message : plan.messages)
    if (message.stage == ReshardStage::deliver) brought[message.to] += message.size.value();
  EXPECT_EQ(brought, (std::map<RankId, std::uint64_t>{
                         {RankId(2), 64}, {RankId(3), 64}, {RankId(4), 64}, {RankId(5), 64}}));
  expect_moves_indices(plan, 6);
}

TEST(Reshard, ASliceIsNotSmallerThanAsked) {
  ReshardConfig config = fine_config();
  config.smallest_slice = Bytes(1024);
  const ReshardPlan plan = plan_reshard(even_cut({64}, 0, 0, 2), replicated({64}, 2, 4), config);
  for (const Piece& piece : plan.pieces) EXPECT_EQ(piece.box.count(), 32);
  expect_moves_indices(plan, 6);
}

TEST(Reshard, ReplicatedSourcesShareTheWork) {
  const ReshardPlan plan =
      plan_reshard(replicated({120}, 0, 3), even_cut({120}, 0, 3, 6), fine_config());
  std::map<RankId, std::uint64_t> sent;
  for (const ReshardMessage& message : plan.messages) sent[message.from] += message.size.value();
  EXPECT_EQ(sent, (std::map<RankId, std::uint64_t>{
                      {RankId(0), 160}, {RankId(1), 160}, {RankId(2), 160}}));
}

TEST(Reshard, EqualLayoutsOnlyCopy) {
  const Layout layout = even_cut({6, 7}, 1, 0, 3);
  const ReshardPlan plan = plan_reshard(layout, layout, fine_config());
  EXPECT_TRUE(plan.messages.empty());
  EXPECT_EQ(plan.copies.size(), 3u);
  expect_moves_indices(plan, 3);
}

TEST(Reshard, ColocatedWithPartialOverlap) {
  expect_reshards(even_cut({24, 5}, 0, 0, 4), even_cut({24, 5}, 0, 2, 3), fine_config(), 5);
  expect_reshards(even_cut({24, 5}, 0, 0, 4), even_cut({24, 5}, 1, 1, 4), fine_config(), 5);
}

TEST(Reshard, ZigzagTiles) {
  const Layout zigzag({2, 8}, {{0, 2}, {0, 2, 4, 6, 8}},
                      {{RankId(0)}, {RankId(1)}, {RankId(1)}, {RankId(0)}});
  expect_reshards(zigzag, even_cut({2, 8}, 1, 0, 2), fine_config(), 2);
  expect_reshards(even_cut({2, 8}, 0, 0, 2), zigzag, fine_config(), 2);
}

TEST(Reshard, ThreeDimensionsOverGrids) {
  const Layout::Shape shape{12, 10, 8};
  const Layout from = grid_layout(shape, {even_boundaries(12, 3), {0, 3, 10}, {0, 8}}, 0, 2);
  const Layout to = grid_layout(shape, {{0, 5, 12}, {0, 10}, even_boundaries(8, 4)}, 12);
  expect_reshards(from, to, fine_config(), 20);
  expect_reshards(to, from, fine_config(), 20);
}

TEST(Reshard, RandomLayoutsArrive) {
  RandomLayouts random(1);
  for (int i = 0; i < 400 && !::testing::Test::HasFailure(); ++i) {
    const int ranks = random.number(1, 9);
    const Layout::Shape shape = random.shape();
    const Layout from = random.layout(shape, ranks), to = random.layout(shape, ranks);
    ReshardConfig config = fine_config();
    config.smallest_slice = Bytes(static_cast<std::uint64_t>(random.number(0, 40)));
    expect_reshards(from, to, config, ranks);
  }
}

TEST(Reshard, ThereAndBackIsTheIdentity) {
  RandomLayouts random(2);
  for (int i = 0; i < 150 && !::testing::Test::HasFailure(); ++i) {
    const int ranks = random.number(1, 8);
    const Layout::Shape shape = random.shape();
    const Layout from = random.layout(shape, ranks), to = random.layout(shape, ranks);
    const ReshardPlan plan = plan_reshard(from, to, fine_config());
    const RankTensors sources = spread(linear_indices(from), from, ranks);
    EXPECT_EQ(play(adjoint(plan, GradientKind::replicate), play(plan, sources)), sources);
  }
}

TEST(Reshard, PlansAreDeterministic) {
  RandomLayouts random(3);
  const Layout::Shape shape{13, 11};
  const Layout from = random.layout(shape, 8), to = random.layout(shape, 8);
  const ReshardConfig config = fine_config();
  EXPECT_EQ(plan_reshard(from, to, config), plan_reshard(from, to, config));
  EXPECT_EQ(plan_sum(from, to, config), plan_sum(from, to, config));
}

TEST(Reshard, RefusesAnotherShape) {
  const Layout line = even_cut({12}, 0, 0, 3);
  EXPECT_THROW(plan_reshard(line, even_cut({3, 4}, 0, 0, 3), {}), Error);
}

TEST(ReshardCache, FindsEqualLayoutsAndForgetsTheOldest) {
  ReshardCache cache(RankId(0), 2);
  const Layout a = even_cut({12}, 0, 0, 3), b = even_cut({12}, 0, 0, 2), c = replicated({12}, 0, 2);
  const ReshardConfig config = fine_config();
  const auto first = cache.find(a, b, config);
  EXPECT_EQ(cache.find(even_cut({12}, 0, 0, 3), b, config), first);
  EXPECT_EQ(cache.planned(), 1u);

  ReshardConfig wider = config;
  wider.type = DataType::f64;
  EXPECT_NE(cache.find(a, b, wider), first);
  EXPECT_NE(cache.find(a, b, config, GradientKind::partial), first);
  EXPECT_EQ(cache.size(), 2u);
  EXPECT_EQ(cache.planned(), 3u);
  EXPECT_NE(cache.find(a, b, config), first);
  cache.find(a, b, config, GradientKind::partial);
  EXPECT_EQ(cache.planned(), 4u);
  cache.find(b, c, config);
  EXPECT_EQ(cache.size(), 2u);
}

}  // namespace
}  // namespace heteroperf
