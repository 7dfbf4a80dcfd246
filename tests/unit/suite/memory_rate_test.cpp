#include "suite/watch/memory_rate.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "runners/comm/world.hpp"

namespace heteroperf {
namespace {

constexpr std::uint64_t mebibyte = 1 << 20;

TriadHost host_of(std::uint64_t cache_mib, std::uint64_t available_mib, int threads, int cpus) {
  return {Bytes(cache_mib * mebibyte), Bytes(available_mib * mebibyte), threads, cpus};
}

TEST(PlanTriad, AllArraysTogetherAreFourTimesTheCache) {
  for (const int threads : {1, 3, 8}) {
    const TriadPlan plan = plan_triad(host_of(32, 8192, threads, 8));
    EXPECT_EQ(plan.reason, "");
    const std::size_t bytes =
        3 * sizeof(double) * static_cast<std::size_t>(threads) * plan.elements;
    EXPECT_GE(bytes, 128 * mebibyte);
    EXPECT_LT(bytes, 128 * mebibyte + 100 * static_cast<std::size_t>(threads));
  }
}

TEST(PlanTriad, SaysWhyTheRateIsNotTold) {
  EXPECT_EQ(plan_triad(host_of(32, 8192, 4, 2)).reason, "4 threads share 2 CPUs");
  EXPECT_EQ(plan_triad(host_of(0, 8192, 1, 2)).reason, "the last-level cache is not known");
  EXPECT_EQ(plan_triad(host_of(32, 0, 1, 2)).reason, "the free memory is not known");
  EXPECT_EQ(plan_triad(host_of(32, 512, 1, 2)).reason, "");
  EXPECT_EQ(plan_triad(host_of(32, 511, 1, 2)).reason,
            "4 times the last-level cache, 128 MiB, is more than a quarter of the 511 MiB that are "
            "free");
  EXPECT_EQ(plan_triad(host_of(256, 1 << 20, 2, 2)).reason, "");
  EXPECT_EQ(plan_triad(host_of(768, 1 << 20, 2, 8)).reason,
            "4 times the last-level cache, 3 GiB, is too much for 2 threads: 640 MiB each at most");
}

TEST(MemoryRate, IsARateOfEveryRank) {
  for (const int threads : {1, 3}) {
    run_on_threads(2, {}, [&](World& world) {
      const MemoryRate memory = measure_triad(*world.communicator, 1000, threads, 0.2);
      EXPECT_EQ(memory.reason, "");
      ASSERT_TRUE(memory.bytes_per_second);
      EXPECT_TRUE(std::isfinite(*memory.bytes_per_second));
      EXPECT_GT(*memory.bytes_per_second, 0);
    });
  }
}

/// As under `ulimit -v`; the other ranks of the host do not wait for it.
TEST(MemoryRate, IsNotToldWhereARankGetsNoMemory) {
  run_on_threads(3, {}, [](World& world) {
    const bool refused = world.communicator->rank() == RankId(1);
    const std::size_t elements = refused ? std::numeric_limits<std::size_t>::max() / 8 : 1000;
    const MemoryRate memory = measure_triad(*world.communicator, elements, 2, 0.01);
    EXPECT_FALSE(memory.bytes_per_second);
    EXPECT_EQ(memory.reason, "the system refused 1 of 3 ranks the arrays or threads for it");
  });
}

/// The threads of all ranks of the host count, and the CPUs that any of them may use.
TEST(MemoryRate, IsNotToldWhereRanksShareCpus) {
  run_on_threads(3, {}, [](World& world) {
    const int rank = world.communicator->rank().value();
    const CpuSet cpus = rank == 0 ? CpuSet{0, 1} : CpuSet{1};
    const MemoryRate memory = measure_memory_rate(*world.communicator, cpus, 1, 0.01);
    EXPECT_FALSE(memory.bytes_per_second);
    EXPECT_TRUE(memory.reason.starts_with("3 threads share ")) << memory.reason;
  });
}

}  // namespace
}  // namespace heteroperf
