#include "runners/comm/reshard/reshard_plan.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "metrics/base/error.hpp"
#include "tests/unit/runners/comm/reshard_cases.hpp"
#include "tests/unit/runners/comm/reshard_checks.hpp"

namespace heteroperf {
namespace {

/// Small integers, so that every order of adding gives the same bits.
std::vector<float> small_values(std::size_t count, std::mt19937& engine) {
  std::uniform_int_distribution<int> any(-8, 8);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(any(engine));
  return values;
}

RankTensors independent_values(const Layout& layout, int ranks, std::mt19937& engine) {
  RankTensors tensors;
  for (int rank = 0; rank < ranks; ++rank)
    tensors.push_back(small_values(static_cast<std::size_t>(layout.count(RankId(rank))), engine));
  return tensors;
}

/// What the ranks' tensors add up to.
std::vector<float> added_up(const RankTensors& tensors, const Layout& layout) {
  std::vector<float> sum(static_cast<std::size_t>(layout.count()), 0.0f);
  for (std::size_t rank = 0; rank < tensors.size(); ++rank) {
    const auto elements = elements_of(layout, RankId(rank));
    for (std::size_t i = 0; i < elements.size(); ++i)
      sum[static_cast<std::size_t>(elements[i])] += tensors[rank][i];
  }
  return sum;
}

double product(const std::vector<float>& a, const std::vector<float>& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

double product(const RankTensors& a, const RankTensors& b) {
  double sum = 0;
  for (std::size_t rank = 0; rank < a.size(); ++rank) sum += product(a[rank], b[rank]);
  return sum;
}

/// The tensor that all replicas agree on.
std::vector<float> agreed(const RankTensors& tensors, const Layout& layout) {
  std::vector<float> tensor(static_cast<std::size_t>(layout.count()));
  for (std::size_t rank = 0; rank < tensors.size(); ++rank) {
    const auto elements = elements_of(layout, RankId(rank));
    for (std::size_t i = 0; i < elements.size(); ++i)
      tensor[static_cast<std::size_t>(elements[i])] = tensors[rank][i];
  }
  EXPECT_EQ(spread(tensor, layout, static_cast<int>(tensors.size())), tensors);
  return tensor;
}

/// ⟨Ax, y⟩ = ⟨x, Aᵀy⟩, where partial gradients of all replicas count and equal ones count once.
TEST(ReshardAdjoint, ProductsAgree) {
  RandomLayouts random(4);
  std::mt19937 engine(5);
  for (int i = 0; i < 300 && !::testing::Test::HasFailure(); ++i) {
    const int ranks = random.number(1, 8);
    const Layout::Shape shape = random.shape();
    const Layout from = random.layout(shape, ranks), to = random.layout(shape, ranks);
    SCOPED_TRACE(text_of(from) + "\n  to " + text_of(to));
    const ReshardPlan plan = plan_reshard(from, to, fine_config());
    const auto count = static_cast<std::size_t>(from.count());
    const std::vector<float> x = small_values(count, engine);
    const RankTensors image = play(plan, spread(x, from, ranks));

    const ReshardPlan summing = adjoint(plan, GradientKind::partial);
    const RankTensors partial = independent_values(to, ranks, engine);
    expect_sound(summing, ranks);
    EXPECT_EQ(product(image, partial), product(x, agreed(play(summing, partial), from)));

    const ReshardPlan picking = adjoint(plan, GradientKind::replicate);
    const std::vector<float> y = small_values(count, engine);
    EXPECT_EQ(product(agreed(image, to), y),
              product(x, agreed(play(picking, spread(y, to, ranks)), from)));
  }
}

TEST(ReshardAdjoint, PartialGradientsAddUpElementByElement) {
  RandomLayouts random(6);
  std::mt19937 engine(7);
  for (int i = 0; i < 300 && !::testing::Test::HasFailure(); ++i) {
    const int ranks = random.number(1, 9);
    const Layout::Shape shape = random.shape();
    const Layout from = random.layout(shape, ranks), to = random.layout(shape, ranks);
    SCOPED_TRACE(text_of(from) + "\n  to " + text_of(to));
    const ReshardPlan plan = plan_sum(from, to, fine_config());
    const RankTensors summands = independent_values(from, ranks, engine);
    expect_sound(plan, ranks);
    EXPECT_EQ(play(plan, summands), spread(added_up(summands, from), to, ranks));
  }
}

TEST(ReshardAdjoint, AddsInRankOrder) {
  // 2^24 + 1 is not a float32: (2^24 + 1) + -2^24 loses the one.
  const float big = 16777216.0f;
  const Layout from = replicated({1}, 0, 3), to = replicated({1}, 3, 1);
  const RankTensors summands{{big}, {1.0f}, {-big}, {}};
  EXPECT_EQ(play(plan_sum(from, to, fine_config()), summands)[3][0], 0.0f);
}

TEST(ReshardAdjoint, AGatherBecomesASliceAndASliceAnAllGather) {
  const Layout cut = even_cut({12}, 0, 0, 3), whole = replicated({12}, 0, 3);
  const ReshardPlan slice =
      adjoint(plan_reshard(cut, whole, fine_config()), GradientKind::replicate);
  EXPECT_TRUE(slice.messages.empty());
  const ReshardPlan gather =
      adjoint(plan_reshard(whole, cut, fine_config()), GradientKind::replicate);
  EXPECT_EQ(moved(gather).value(), 2u * 12 * 4);
  EXPECT_TRUE(gather.sums.empty());
}

TEST(ReshardAdjoint, ABroadcastIsAddedOnlyWhenPartial) {
  const Layout root = replicated({12}, 0, 1), all = replicated({12}, 0, 4);
  const ReshardPlan broadcast = plan_reshard(root, all, fine_config());
  const ReshardPlan picks = adjoint(broadcast, GradientKind::replicate);
  EXPECT_TRUE(picks.messages.empty());
  const ReshardPlan adds = adjoint(broadcast, GradientKind::partial);
  EXPECT_FALSE(adds.sums.empty());
  EXPECT_EQ(moved(adds).value(), 3u * 12 * 4);
}

TEST(ReshardAdjoint, ColocatedReplicasReduceScatterAndAllGather) {
  const Layout all = replicated({40}, 0, 4);
  const ReshardPlan plan = plan_sum(all, all, fine_config());
  EXPECT_EQ(moved(plan).value(), 2u * 3 * 40 * 4);
  std::map<RankId, std::uint64_t> sent;
  for (const ReshardMessage& message : plan.messages) sent[message.from] += message.size.value();
  for (const auto& [rank, bytes] : sent) EXPECT_EQ(bytes, 240u);
}

// --- rounds ----------------------------------------------------------------------------------

}  // namespace
}  // namespace heteroperf
