// Started by mpirun: every rank runs every test, in step with the others.
#include <gtest/gtest.h>

#include <thread>

#include "tests/ranks/comm/joined_world.hpp"
#include "tests/unit/runners/engine/gradient_cases.hpp"

namespace heteroperf {
namespace {

ReductionConfig config_of(std::size_t bucket_bytes, ReductionConfig::Overlap overlap) {
  ReductionConfig config;
  config.bucket_bytes = bucket_bytes;
  config.overlap = overlap;
  return config;
}

TEST(GradientsOnMpi, SumBitByBitWithAndWithoutOverlap) {
  Communicator& world = *joined_world().communicator;
  for (const test::GradientCase& given : test::gradient_cases()) {
    const int ranks = given.plan.ranks();
    if (ranks > world.size()) continue;
    const auto group = world.split(world.rank().value() / ranks, world.rank().value());
    if (group->size() < ranks) continue;
    using enum ReductionConfig::Overlap;
    const std::string expected = test::train_checked(given, *group, config_of(4 << 20, off), 0);
    EXPECT_EQ(test::train_checked(given, *group, config_of(1000, on), 0), expected) << given.name;
    EXPECT_EQ(test::train_checked(given, *group, config_of(3000, on), 1), expected) << given.name;
  }
}

/// Messages of the world travel while the sums do.
TEST(GradientsOnMpi, OverlapWithMessages) {
  Communicator& world = *joined_world().communicator;
  test::GradientCase given = test::gradient_cases()[1];
  const int ranks = given.plan.ranks();
  const auto group = world.split(world.rank().value() / ranks, world.rank().value());
  if (group->size() < ranks) return;
  test::GradientRig rig(given, *group, config_of(1, ReductionConfig::Overlap::on));
  if (!rig.reducer.overlap_reason().empty()) GTEST_SKIP() << rig.reducer.overlap_reason();
  const RankId peer(1 - group->rank().value());
  std::vector<double> mine(5000, group->rank().value()), theirs(5000);
  for (std::uint64_t step = 0; step < 20; ++step) {
    rig.draw(step);
    rig.reducer.ready(rig.store.ordinal(given.graph.find("head"), 0));
    while (rig.reducer.queue().done() == 0) std::this_thread::yield();
    rig.reduce_all();
    const Outgoing out{std::span<const double>(mine), peer};
    const Incoming in{std::span<double>(theirs), peer};
    for (int i = 0; i < 5; ++i) group->exchange({&out, 1}, {&in, 1});
    EXPECT_EQ(theirs.back(), peer.value());
    rig.reducer.wait();
    rig.expect_sums(step);
  }
}

}  // namespace
}  // namespace heteroperf
