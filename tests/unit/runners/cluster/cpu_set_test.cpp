#include "runners/cluster/cpu_set.hpp"

#include <sched.h>

#include <thread>

#include "metrics/base/error.hpp"
#include "metrics/base/random.hpp"
#include "tests/unit/runners/cluster/fake_root.hpp"

namespace heteroperf {
namespace {

using test::FakeRoot;

FakeRoot& with_cpus(FakeRoot& root, const std::string& allowed, const std::vector<CpuSet>& cores) {
  root.write("proc/self/status",
             "Name:\tx\nCpus_allowed:\tff\nCpus_allowed_list:\t" + allowed + "\n");
  for (const CpuSet& core : cores) {
    for (const int cpu : core) {
      root.write(
          "sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list",
          to_list(core) + "\n");
    }
  }
  return root;
}

TEST(CpuList, RoundTripsRandomSets) {
  RandomStream random(7);
  for (int round = 0; round < 200; ++round) {
    CpuSet cpus;
    for (int cpu = 0; cpu < 40; ++cpu) {
      if (random.below(3) != 0) cpus.push_back(cpu);
    }
    EXPECT_EQ(parse_cpu_list(to_list(cpus)), cpus);
  }
  EXPECT_EQ(to_list({8, 0, 1, 2, 3}), "0-3,8");
  EXPECT_EQ(to_list({}), "");
}

TEST(CpuList, RefusesWhatIsNotAList) {
  for (const char* text : {"a", "1-", "3-1", "-2", "1,,x", "0-9999999", "1 2"}) {
    EXPECT_THROW(parse_cpu_list(text), UserError) << text;
  }
}

TEST(UsableCores, TakesOneThreadOfEachCoreFirst) {
  FakeRoot root;
  with_cpus(root, "0-7", {{0, 4}, {1, 5}, {2, 6}, {3, 7}});
  const UsableCores cores = usable_cores(root.files());
  EXPECT_EQ(cores.cpus, (CpuSet{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(cores.physical, 4);
  EXPECT_EQ(cores.count(), 4);
  EXPECT_TRUE(cores.may_bind());
}

TEST(UsableCores, NeighbouringSiblingsAreTakenLast) {
  FakeRoot root;
  with_cpus(root, "0-3", {{0, 1}, {2, 3}});
  EXPECT_EQ(usable_cores(root.files()).cpus, (CpuSet{0, 2, 1, 3}));
}

TEST(UsableCores, FollowsTheAffinityMask) {
  FakeRoot root;
  with_cpus(root, "2,6-7", {{0, 4}, {1, 5}, {2, 6}, {3, 7}});
  const UsableCores cores = usable_cores(root.files());
  EXPECT_EQ(cores.cpus, (CpuSet{2, 7, 6}));
  EXPECT_EQ(cores.count(), 2);
}

TEST(UsableCores, AQuotaBelowTheMaskLimitsTheCountAndForbidsBinding) {
  FakeRoot root;
  with_cpus(root, "0-7", {});
  root.write("proc/self/cgroup", "0::/\n")
      .write("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
      .write("sys/fs/cgroup/cpu.max", "350000 100000\n");
  const UsableCores cores = usable_cores(root.files());
  EXPECT_EQ(cores.count(), 3);
  EXPECT_FALSE(cores.may_bind());
  EXPECT_TRUE(place_ranks(cores, 1, 1).empty());
  root.write("sys/fs/cgroup/cpu.max", "20000 100000\n");
  EXPECT_EQ(usable_cores(root.files()).count(), 1);
}

TEST(UsableCores, WithoutProcCountsTheHardware) {
  FakeRoot root;
  const UsableCores cores = usable_cores(root.files());
  EXPECT_GE(cores.count(), 1);
  EXPECT_EQ(cores.source, "std::thread::hardware_concurrency");
}

TEST(PlaceRanks, BlocksAreDisjointAndFull) {
  UsableCores cores;
  cores.cpus = {0, 2, 1, 3};
  cores.physical = 2;
  EXPECT_EQ(place_ranks(cores, 2, 2), (std::vector<CpuSet>{{0, 2}, {1, 3}}));
  EXPECT_EQ(place_ranks(cores, 2, 1), (std::vector<CpuSet>{{0}, {2}}));
  EXPECT_TRUE(place_ranks(cores, 5, 1).empty());
  EXPECT_TRUE(place_ranks(cores, 2, 3).empty());
}

TEST(BindThisThread, RestrictsTheThreadThatCalls) {
  const CpuSet all = usable_cores().cpus;
  ASSERT_FALSE(all.empty());
  CpuSet seen;
  std::thread([&] {
    bind_this_thread({all.back()});
    cpu_set_t mask;
    CPU_ZERO(&mask);
    sched_getaffinity(0, sizeof mask, &mask);
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &mask)) seen.push_back(cpu);
    }
  }).join();
  EXPECT_EQ(seen, CpuSet{all.back()});
  EXPECT_EQ(usable_cores().cpus, all);
}

TEST(BindThisThread, ACpuThatIsNotThereIsAnEnvironmentError) {
  try {
    bind_this_thread({100000});
    FAIL() << "bound to a CPU that is not there";
  } catch (const SystemError& error) {
    EXPECT_EQ(error.kind(), ErrorKind::environment);
    EXPECT_NE(std::string(error.what()).find("100000"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace heteroperf
