#include "runners/engine/gradients/gradient_reducer.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>

#include "metrics/base/error.hpp"
#include "runners/comm/world.hpp"
#include "tests/unit/runners/engine/gradient_cases.hpp"

namespace heteroperf {
namespace {

using test::GradientCase;
using test::GradientRig;
using Overlap = ReductionConfig::Overlap;
using Prints = std::vector<std::string>;

ReductionConfig config_of(std::size_t bucket_bytes, Overlap overlap) {
  ReductionConfig config;
  config.bucket_bytes = bucket_bytes;
  config.overlap = overlap;
  return config;
}

/// Fingerprints of all ranks.
Prints train_and_print(const GradientCase& given, const ReductionConfig& config, int zero_stage) {
  Prints prints(static_cast<std::size_t>(given.plan.ranks()));
  run_on_threads(given.plan.ranks(), {}, [&](World& world) {
    const auto rank = world.communicator->rank().index();
    prints[rank] = test::train_checked(given, *world.communicator, config, zero_stage);
  });
  return prints;
}

GradientCase case_named(const std::string& name) {
  for (GradientCase& given : test::gradient_cases()) {
    if (given.name == name) return std::move(given);
  }
  throw std::invalid_argument(name);
}

class EveryCase : public ::testing::TestWithParam<std::size_t> {
 protected:
  GradientCase given() const { return test::gradient_cases()[GetParam()]; }
};

TEST_P(EveryCase, SumsBitByBitWhateverTheBucketsAndOverlap) {
  const GradientCase given = this->given();
  const Prints expected = train_and_print(given, config_of(4 << 20, Overlap::off), 0);
  EXPECT_EQ(train_and_print(given, config_of(4 << 20, Overlap::on), 0), expected) << given.name;
  EXPECT_EQ(train_and_print(given, config_of(1000, Overlap::on), 0), expected) << given.name;
}

TEST_P(EveryCase, SharedOptimizerStatesGiveTheSameBits) {
  const GradientCase given = this->given();
  const Prints expected = train_and_print(given, config_of(4 << 20, Overlap::off), 0);
  EXPECT_EQ(train_and_print(given, config_of(4 << 20, Overlap::off), 1), expected) << given.name;
  EXPECT_EQ(train_and_print(given, config_of(3000, Overlap::on), 1), expected) << given.name;
}

// The group of devices is one more group of the same ranks here.
TEST_P(EveryCase, SumsAlikeThroughAGroupOfDevices) {
  const GradientCase given = this->given();
  const Prints expected = train_and_print(given, config_of(3000, Overlap::on), 1);
  Prints prints(static_cast<std::size_t>(given.plan.ranks()));
  run_on_threads(given.plan.ranks(), {}, [&](World& world) {
    const RankId rank = world.communicator->rank();
    const auto devices = world.communicator->split(0, rank.value());
    ReductionConfig config = config_of(3000, Overlap::on);
    config.devices = devices.get();
    prints[rank.index()] = test::train_checked(given, *world.communicator, config, 1);
  });
  EXPECT_EQ(prints, expected) << given.name;
}

INSTANTIATE_TEST_SUITE_P(GradientReducer, EveryCase,
                         ::testing::Range<std::size_t>(0, test::gradient_cases().size()));

TEST(GradientReducer, ARankOfItsOwnSumsNothing) {
  const auto world = make_null_communicator();
  const GradientCase given = case_named("one rank");
  EXPECT_EQ(test::train_checked(given, *world, {}, 0), test::train_checked(given, *world, {}, 1));
  const GradientRig rig(given, *world, {});
  EXPECT_EQ(rig.reducer.queue().size(), 0U);
  EXPECT_EQ(rig.reducer.overlap_reason(), "nothing is summed on this rank");
  const auto owned = rig.reducer.owned();
  ASSERT_EQ(owned.size(), 1U);
  EXPECT_EQ(owned[0], (ArenaRange{0, rig.store.elements()}));
}

TEST(GradientReducer, StatesAreSharedInPartsThatCoverEverythingOnce) {
  GradientCase given = case_named("dp 5:2:1");
  given.plan.zero_stage = 1;
  run_on_threads(3, {}, [&](World& world) {
    const GradientRig rig(given, *world.communicator, config_of(2000, Overlap::on));
    std::vector<double> owners(static_cast<std::size_t>(rig.store.elements()));
    std::int64_t own = 0;
    for (const ArenaRange& range : rig.reducer.owned()) {
      own += range.count();
      for (std::int64_t i = range.begin; i < range.end; ++i) {
        owners[static_cast<std::size_t>(i)] += 1;
      }
    }
    EXPECT_LT(own, rig.store.elements() / 2);
    world.communicator->all_reduce(std::span<double>(owners));
    for (const double count : owners) ASSERT_EQ(count, 1.0);
  });
}

/// The last matrices' sum arrives while the rank still holds back all other gradients.
TEST(GradientReducer, SumsWhileGradientsAreStillMissing) {
  const GradientCase given = case_named("dp 3:1");
  run_on_threads(2, {}, [&](World& world) {
    GradientRig rig(given, *world.communicator, config_of(1, Overlap::on));
    EXPECT_EQ(rig.reducer.overlap_reason(), "");
    ASSERT_GT(rig.reducer.queue().size(), 2U);
    const NodeId head = given.graph.find("head");
    const std::size_t last_matrix = rig.store.ordinal(head, 0);
    for (std::uint64_t step = 0; step < 3; ++step) {
      rig.draw(step);
      const double before = rig.store.gradient(head, 0).sum().item().toDouble();
      rig.reducer.ready(last_matrix);
      while (rig.reducer.queue().done() == 0) std::this_thread::yield();
      EXPECT_NE(rig.store.gradient(head, 0).sum().item().toDouble(), before);
      EXPECT_EQ(rig.reducer.queue().done(), 1U);
      rig.reduce_all();
      rig.reducer.wait();
      rig.expect_sums(step);
    }
  });
}

TEST(GradientReducer, WithoutOverlapSumsWaitAndSayWhy) {
  const GradientCase given = case_named("dp 3:1");
  run_on_threads(2, {}, [&](World& world) {
    GradientRig rig(given, *world.communicator, config_of(1, Overlap::off));
    EXPECT_EQ(rig.reducer.overlap_reason(), "switched off");
    rig.draw(0);
    rig.reduce_all();
    EXPECT_EQ(rig.reducer.queue().done(), 0U);
    rig.reducer.wait();
    rig.expect_sums(0);
  });
}

TEST(GradientReducer, ATiedWeightWaitsForAllItsParts) {
  const GradientCase given = case_named("tied, both stages on a rank, dp 2");
  run_on_threads(2, {}, [&](World& world) {
    GradientRig rig(given, *world.communicator, config_of(4 << 20, Overlap::on));
    rig.draw(0);
    for (std::size_t o = 0; o < rig.store.count(); ++o) rig.reducer.ready(o);
    const std::size_t untied = rig.reducer.queue().size() - 1;
    while (rig.reducer.queue().done() < untied) std::this_thread::yield();
    rig.reducer.reduce_tied(1);
    EXPECT_EQ(rig.reducer.queue().done(), untied);
    rig.reducer.reduce_tied(0);
    while (rig.reducer.queue().done() < untied + 1) std::this_thread::yield();
    rig.reducer.wait();
    rig.expect_sums(0);
  });
}

TEST(GradientReducer, ADeadRankEndsTheWaitOfTheOthers) {
  const GradientCase given = case_named("dp 5:2:1");
  for (const Overlap overlap : {Overlap::on, Overlap::off}) {
    std::atomic<int> told{0};
    const auto body = [&](World& world) {
      GradientRig rig(given, *world.communicator, config_of(1000, overlap));
      if (world.communicator->rank() == RankId(1)) throw UserError("lost on purpose");
      rig.draw(0);
      rig.reduce_all();
      try {
        rig.reducer.wait();
      } catch (const PeerError& error) {
        EXPECT_EQ(error.failure().rank, RankId(1));
        EXPECT_THROW(rig.reducer.wait(), PeerError);
        ++told;
        throw;
      }
    };
    try {
      run_on_threads(3, {}, body);
      ADD_FAILURE() << "nobody threw";
    } catch (const UserError& error) {
      EXPECT_STREQ(error.what(), "lost on purpose");
    }
    EXPECT_EQ(told, 2);
  }
}

/// Rank 0 throws while its own reduction waits for rank 1, which waits for rank 0.
TEST(GradientReducer, ARankLeavesThoughItsSumsWaitForPeers) {
  const GradientCase given = case_named("dp 3:1");
  const auto body = [&](World& world) {
    GradientRig rig(given, *world.communicator, config_of(1000, Overlap::on));
    rig.draw(0);
    if (world.communicator->rank() == RankId(0)) {
      rig.reduce_all();
      std::this_thread::sleep_for(std::chrono::milliseconds(50));  // until its sums have begun
      throw UserError("lost on purpose");
    }
    double value = 0;
    world.communicator->receive(std::span<double>(&value, 1), RankId(0));
  };
  try {
    run_on_threads(2, {}, body);
    ADD_FAILURE() << "nobody threw";
  } catch (const UserError& error) {
    EXPECT_STREQ(error.what(), "lost on purpose");
  }
}

}  // namespace
}  // namespace heteroperf
