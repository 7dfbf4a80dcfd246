#include "runners/device/host_pool.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/Allocator.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <queue>
#include <thread>
#include <vector>

#include "metrics/base/random.hpp"

namespace heteroperf {
namespace {

at::Tensor bytes(std::int64_t count) {
  return at::empty({count}, at::TensorOptions().dtype(at::kByte));
}

constexpr std::int64_t mebibyte = 1 << 20;

TEST(HostPool, ChargesTheBoundRankWithTheBytesAskedFor) {
  const RankMemory memory;
  const MemoryScope scope(memory);
  EXPECT_EQ(memory.use().current_bytes, 0U);
  at::Tensor a = bytes(1000), b = bytes(3 * mebibyte);
  EXPECT_EQ(memory.use().current_bytes, 1000U + 3 * mebibyte);
  b.reset();
  EXPECT_EQ(memory.use().current_bytes, 1000U);
  EXPECT_EQ(memory.use().peak_bytes, 1000U + 3 * mebibyte);
}

TEST(HostPool, GivesAlignedMemoryOfEverySize) {
  const RankMemory memory;
  const MemoryScope scope(memory);
  RandomStream random(7);
  for (int i = 0; i < 300; ++i) {
    const auto size =
        static_cast<std::int64_t>(1 + random.below(std::uint64_t{1} << random.below(24)));
    at::Tensor block = bytes(size);
    ASSERT_EQ(reinterpret_cast<std::uintptr_t>(block.data_ptr()) % 64, 0U) << size;
    block.fill_(i % 256);
    ASSERT_EQ(block[size - 1].item<std::uint8_t>(), static_cast<std::uint8_t>(i));
  }
}

TEST(HostPool, AnUnboundThreadIsChargedToTheProcess) {
  install_host_pool();
  const RankMemory memory;
  const std::uint64_t before = process_account().current_bytes;
  const at::Tensor a = bytes(5000);
  EXPECT_EQ(process_account().current_bytes, before + 5000);
  EXPECT_EQ(memory.use().current_bytes, 0U);
}

TEST(HostPool, ScopesNest) {
  const RankMemory outer, inner;
  const MemoryScope outer_scope(outer);
  at::Tensor b;
  {
    const MemoryScope inner_scope(inner);
    b = bytes(200);
  }
  const at::Tensor a = bytes(100);
  EXPECT_EQ(outer.use().current_bytes, 100U);
  EXPECT_EQ(inner.use().current_bytes, 200U);
}

TEST(HostPool, AnotherThreadsFreeCreditsTheOwner) {
  const RankMemory owner, other;
  at::Tensor block;
  {
    const MemoryScope scope(owner);
    block = bytes(mebibyte);
  }
  std::thread([&] {
    const MemoryScope scope(other);
    block.reset();
  }).join();
  EXPECT_EQ(owner.use().current_bytes, 0U);
  EXPECT_EQ(other.use().current_bytes, 0U);
  EXPECT_EQ(other.use().cached_bytes, 0U);
}

TEST(HostPool, ABlockOutlivesItsRank) {
  std::optional<RankMemory> memory(std::in_place);
  at::Tensor block;
  {
    const MemoryScope scope(*memory);
    block = bytes(4 * mebibyte);
  }
  memory.reset();
  block.fill_(3);
  EXPECT_EQ(block[4 * mebibyte - 1].item<std::uint8_t>(), 3);
}

TEST(HostPool, ReusesFreedBlocksInsteadOfAskingTheSystem) {
  const RankMemory memory;
  const MemoryScope scope(memory);
  const auto step = [] {
    const at::Tensor a = bytes(mebibyte), b = bytes(3 * mebibyte), c = bytes(100000);
  };
  step();
  const std::uint64_t after_first = memory.use().system_requests;
  for (int i = 0; i < 50; ++i) step();
  EXPECT_EQ(memory.use().system_requests, after_first);
  EXPECT_GT(memory.use().cached_bytes, 0U);
  RankMemory(memory).trim();
  EXPECT_EQ(memory.use().cached_bytes, 0U);
}

TEST(HostPool, DoesNotServeASmallRequestFromALargeBlock) {
  const RankMemory memory;
  const MemoryScope scope(memory);
  bytes(8 * mebibyte).reset();
  const std::uint64_t cached = memory.use().cached_bytes;
  const at::Tensor small = bytes(mebibyte / 2);
  EXPECT_EQ(memory.use().cached_bytes, cached);
}

TEST(HostPool, UsedAndCachedStayBelowThePeakAndAnEighth) {
  const RankMemory memory;
  const MemoryScope scope(memory);
  RandomStream random(11);
  std::vector<at::Tensor> held(24);
  for (int i = 0; i < 3000; ++i) {
    held[random.below(held.size())] =
        bytes(static_cast<std::int64_t>(1 + random.below(2 * mebibyte)));
    const MemoryUse use = memory.use();
    ASSERT_LE(use.current_bytes + use.cached_bytes,
              use.peak_bytes + use.peak_bytes / 8 + 4 * mebibyte);
  }
}

TEST(HostPool, RawMemoryIsChargedAndTheEmptyBlockMayBeFreed) {
  const RankMemory memory;
  const MemoryScope scope(memory);
  c10::Allocator* pool = c10::GetAllocator(c10::DeviceType::CPU);
  void* empty = pool->raw_allocate(0);
  void* block = pool->raw_allocate(500);
  EXPECT_EQ(memory.use().current_bytes, 500U);
  pool->raw_deallocate(empty);
  pool->raw_deallocate(nullptr);
  pool->raw_deallocate(block);
  EXPECT_EQ(memory.use().current_bytes, 0U);
}

/// Hands tensors from one thread to another.
class Channel {
 public:
  void push(at::Tensor tensor) {
    const std::lock_guard lock(mutex_);
    queue_.push(std::move(tensor));
    ready_.notify_one();
  }
  at::Tensor pop() {
    std::unique_lock lock(mutex_);
    ready_.wait(lock, [&] { return !queue_.empty(); });
    at::Tensor first = std::move(queue_.front());
    queue_.pop();
    return first;
  }

 private:
  std::mutex mutex_;
  std::condition_variable ready_;
  std::queue<at::Tensor> queue_;
};

TEST(HostPool, ThreadsFreeEachOthersBlocksWithoutLosingAny) {
  constexpr int rounds = 2000;
  const std::vector<RankMemory> memories(2);
  std::vector<Channel> to(2);
  const auto rank = [&](std::size_t self) {
    const MemoryScope scope(memories[self]);
    RandomStream random(self);
    for (int i = 0; i < rounds; ++i) {
      at::Tensor mine = bytes(static_cast<std::int64_t>(64 + random.below(200000)));
      mine[0].fill_(static_cast<int>(self));
      to[1 - self].push(std::move(mine));
      const at::Tensor theirs = to[self].pop();
      ASSERT_EQ(theirs[0].item<std::uint8_t>(), 1 - self);
    }
  };
  std::thread first(rank, 0), second(rank, 1);
  first.join();
  second.join();
  for (const RankMemory& memory : memories) EXPECT_EQ(memory.use().current_bytes, 0U);
}

}  // namespace
}  // namespace heteroperf
