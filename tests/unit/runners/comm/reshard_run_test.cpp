#include <gtest/gtest.h>

#include "metrics/base/error.hpp"
#include "runners/comm/reshard/reshard.hpp"
#include "runners/comm/world.hpp"
#include "tests/unit/runners/comm/reshard_cases.hpp"

namespace heteroperf {
namespace {

std::span<const float> source_of(const RankTensors& tensors, RankId rank) {
  return tensors[rank.index()];
}

/// Both kinds of plan, twice each, on threads: the same bits as without a communicator.
void run_on(int ranks, const Layout& from, const Layout& to, const ReshardConfig& config) {
  const RankTensors sources = spread(linear_indices(from), from, ranks);
  const RankTensors moved = play(plan_reshard(from, to, config), sources);
  const RankTensors added = play(plan_sum(from, to, config), sources);
  RankTensors results[2] = {moved, added};
  run_on_threads(ranks, {}, [&](World& world) {
    const RankId rank = world.communicator->rank();
    const auto at = rank.index();
    ReshardCache cache(rank);
    for (int repeat = 0; repeat < 2; ++repeat)
      for (const GradientKind kind : {GradientKind::replicate, GradientKind::partial}) {
        std::vector<float>& result = results[static_cast<std::size_t>(kind)][at];
        std::fill(result.begin(), result.end(), -1.0f);
        cache.find(from, to, config, kind)
            ->run(*world.communicator, source_of(sources, rank), std::span<float>(result));
      }
    EXPECT_EQ(cache.planned(), 2u);
  });
  EXPECT_EQ(results[0], moved);
  EXPECT_EQ(results[1], added);
}

TEST(ReshardRun, ThreadsMoveRandomLayouts) {
  RandomLayouts random(11);
  for (int i = 0; i < 40 && !::testing::Test::HasFailure(); ++i) {
    const int ranks = random.number(1, 6);
    const Layout::Shape shape = random.shape();
    const Layout from = random.layout(shape, ranks), to = random.layout(shape, ranks);
    run_on(ranks, from, to, fine_config());
  }
}

TEST(ReshardRun, ThreadsMoveLargeMessagesInMoreRoundsThanAreUnderWay) {
  run_on(8, even_cut({8, 64, 512}, 1, 0, 8), even_cut({8, 64, 512}, 2, 0, 8), fine_config());
  run_on(7, replicated({100000}, 0, 3), replicated({100000}, 2, 5), fine_config());
}

void reshard(Communicator& group, const ReshardPlan& plan, ConstBuffer source,
             MutableBuffer result) {
  Resharder(std::make_shared<ReshardPlan>(plan), group.rank()).run(group, source, result);
}

TEST(ReshardRun, ABufferThatDoesNotFitIsRefused) {
  const Layout layout = even_cut({8}, 0, 0, 1);
  const ReshardPlan plan = plan_reshard(layout, layout, fine_config());
  const auto group = make_null_communicator();
  std::vector<float> local(8), result(8);
  std::vector<double> wide(8);
  EXPECT_NO_THROW(reshard(*group, plan, std::span<const float>(local), std::span<float>(result)));
  const auto part = std::span<float>(result).first(7);
  EXPECT_THROW(reshard(*group, plan, std::span<const float>(local), part), Error);
  EXPECT_THROW(reshard(*group, plan, std::span<const double>(wide), std::span<float>(result)),
               Error);
  const Layout wider = even_cut({8}, 0, 0, 2);
  EXPECT_THROW(reshard(*group, plan_reshard(layout, wider, fine_config()),
                       std::span<const float>(local), part.first(4)),
               Error);
}

}  // namespace
}  // namespace heteroperf
