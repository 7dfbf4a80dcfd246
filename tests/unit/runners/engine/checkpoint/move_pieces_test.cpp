#include <gtest/gtest.h>

#include <atomic>
#include <deque>

#include "metrics/base/error.hpp"
#include "runners/comm/world.hpp"
#include "tests/unit/runners/engine/checkpoint/stored_training.hpp"

namespace heteroperf {
namespace {

TEST(MovePieces, AnyShardingBecomesAnyOther) {
  RandomStream random(21);
  for (int round = 0; round < 12; ++round) {
    const StoredTraining training = StoredTraining::random(6, random);
    constexpr int ranks = 4;
    const Sharding held = random_sharding(training, ranks, random, Fill::training);
    const Sharding wanted = random_sharding(training, ranks, random, Fill::zero);
    run_on_threads(ranks, {}, [&](World& world) {
      const auto rank = world.communicator->rank().index();
      move_pieces(*world.communicator, held.pieces[rank], wanted.pieces[rank]);
    });
    EXPECT_TRUE(holds(wanted, training)) << "round " << round;
    EXPECT_TRUE(holds(held, training)) << "round " << round;
  }
}

TEST(MovePieces, ReplicasAreFilledAndWhatIsHeldStays) {
  RandomStream random(5);
  const StoredTraining training = StoredTraining::random(4, random);
  constexpr int ranks = 3;
  // Every rank holds all, in the tiles of its own sharding.
  std::deque<Sharding> whole, wanted;  // their pieces point into themselves
  for (int rank = 0; rank < ranks; ++rank) {
    whole.push_back(random_sharding(training, 1, random, Fill::training));
    wanted.push_back(random_sharding(training, 1, random, Fill::zero));
  }
  std::atomic<std::uint64_t> all_held = 0, one_held = 0;
  run_on_threads(ranks, {}, [&](World& world) {
    const auto rank = world.communicator->rank().index();
    all_held +=
        move_pieces(*world.communicator, whole[rank].pieces[0], wanted[rank].pieces[0]).bytes;
  });
  for (const Sharding& sharding : wanted) EXPECT_TRUE(holds(sharding, training));
  EXPECT_EQ(all_held, 0u);

  std::deque<Sharding> again;
  for (int rank = 0; rank < ranks; ++rank) {
    again.push_back(random_sharding(training, 1, random, Fill::zero));
  }
  run_on_threads(ranks, {}, [&](World& world) {
    const auto rank = world.communicator->rank().index();
    const std::vector<TensorPiece> held =
        rank == 1 ? whole[1].pieces[0] : std::vector<TensorPiece>();
    one_held = move_pieces(*world.communicator, held, again[rank].pieces[0]).bytes;
  });
  for (const Sharding& sharding : again) EXPECT_TRUE(holds(sharding, training));
  std::uint64_t bytes = 0;
  for (const auto& tensor : training.bytes) bytes += tensor.size();
  // Each of the two others gets every byte once, from whomever.
  EXPECT_EQ(one_held, 2 * bytes);
}

TEST(MovePieces, WhatNobodyHoldsIsRefusedOnEveryRankBeforeAnythingMoves) {
  RandomStream random(6);
  const StoredTraining training = StoredTraining::random(5, random);
  constexpr int ranks = 3;
  Sharding held = random_sharding(training, ranks, random, Fill::training);
  const Sharding wanted = random_sharding(training, ranks, random, Fill::zero);
  // One tile that has elements is taken away.
  bool taken = false;
  for (auto& pieces : held.pieces) {
    for (auto piece = pieces.begin(); piece != pieces.end() && !taken; ++piece) {
      if (piece->box.count() == 0) continue;
      pieces.erase(piece);
      taken = true;
      break;
    }
  }
  ASSERT_TRUE(taken);
  std::atomic<int> told = 0;
  run_on_threads(ranks, {}, [&](World& world) {
    const auto rank = world.communicator->rank().index();
    try {
      move_pieces(*world.communicator, held.pieces[rank], wanted.pieces[rank]);
    } catch (const Error& error) {
      if (std::string(error.what()).find("no rank holds it") != std::string::npos) ++told;
    }
  });
  EXPECT_EQ(told, ranks);
  for (const auto& memory : wanted.memory) {
    for (const std::byte value : memory) ASSERT_EQ(value, std::byte{0});
  }
}

}  // namespace
}  // namespace heteroperf
