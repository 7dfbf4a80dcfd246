#include "runners/engine/checkpoint/checkpoint.hpp"

#include <gtest/gtest.h>

#include <atomic>

#include "metrics/base/error.hpp"
#include "runners/comm/world.hpp"
#include "tests/unit/runners/engine/checkpoint/stored_training.hpp"

namespace heteroperf {
namespace {

TEST(SaveCheckpoint, EveryRankWritesItsPartAndAllGetTheReport) {
  const ScratchFolder scratch;
  RandomStream random(8);
  const StoredTraining training = StoredTraining::random(5, random);
  constexpr int ranks = 3;
  const Sharding saved = random_sharding(training, ranks, random, Fill::training);
  std::atomic<std::uint64_t> bytes = 0;
  run_on_threads(ranks, {}, [&](World& world) {
    const auto rank = world.communicator->rank().index();
    bytes += save_checkpoint(*world.communicator, scratch / "c", some_state(2), saved.pieces[rank])
                 .bytes;
  });
  Sharding loaded = random_sharding(training, 1, random, Fill::zero);
  const CheckpointReader reader(scratch / "c");
  reader.read(loaded.pieces[0]);
  EXPECT_TRUE(holds(loaded, training));
  EXPECT_GT(bytes, ranks * reader.bytes());
}

TEST(SaveCheckpoint, EveryRankIsToldOfAFailureAndCanGoOn) {
  const ScratchFolder scratch;
  RandomStream random(9);
  const StoredTraining training = StoredTraining::random(5, random);
  constexpr int ranks = 3;
  const Sharding saved = random_sharding(training, ranks, random, Fill::training);
  std::atomic<int> told = 0;
  run_on_threads(ranks, {}, [&](World& world) {
    const auto rank = world.communicator->rank().index();
    try {
      // /proc refuses new files to everybody, root included.
      save_checkpoint(*world.communicator, "/proc/c", some_state(2), saved.pieces[rank]);
    } catch (const Error& error) {
      if (std::string(error.what()).find("/proc/") != std::string::npos) ++told;
    }
    save_checkpoint(*world.communicator, scratch / "c", some_state(2), saved.pieces[rank]);
  });
  EXPECT_EQ(told, ranks);
  EXPECT_NO_THROW(CheckpointReader(scratch / "c").verify());
}

}  // namespace
}  // namespace heteroperf
