#include "runners/cluster/system_files.hpp"

#include "tests/unit/runners/cluster/fake_root.hpp"

namespace heteroperf {
namespace {

using test::FakeRoot;

constexpr const char* v2_mount = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";

TEST(Cgroup, NothingMountedMeansNoLimit) {
  FakeRoot root;
  const CgroupLimits limits = read_cgroup_limits(root.files());
  EXPECT_FALSE(limits.cores);
  EXPECT_FALSE(limits.memory);
  EXPECT_EQ(limits.memory.reason, "no limit");
}

TEST(Cgroup, Version2TakesTheTightestOnTheWayUp) {
  FakeRoot root;
  root.write("proc/self/cgroup", "0::/a/b\n")
      .write("proc/self/mountinfo", v2_mount)
      .write("sys/fs/cgroup/a/b/cpu.max", "max 100000\n")
      .write("sys/fs/cgroup/a/cpu.max", "150000 100000\n")
      .write("sys/fs/cgroup/a/b/memory.max", "8589934592\n")
      .write("sys/fs/cgroup/a/memory.max", "4294967296\n");
  const CgroupLimits limits = read_cgroup_limits(root.files());
  ASSERT_TRUE(limits.cores);
  EXPECT_DOUBLE_EQ(*limits.cores, 1.5);
  EXPECT_EQ(limits.cores.source, "/sys/fs/cgroup/a/cpu.max");
  ASSERT_TRUE(limits.memory);
  EXPECT_EQ(limits.memory.value->value(), 4294967296U);
}

TEST(Cgroup, AvailableIsWhatTheTightestGroupLeaves) {
  FakeRoot root;
  root.write("proc/meminfo", "MemAvailable:    8192 kB\n");
  EXPECT_EQ(available_memory(root.files()).value->value(), 8192U * 1024);
  root.write("proc/self/cgroup", "0::/a/b\n")
      .write("proc/self/mountinfo", v2_mount)
      .write("sys/fs/cgroup/a/b/memory.max", "max\n")
      .write("sys/fs/cgroup/a/memory.max", "5000000\n")
      .write("sys/fs/cgroup/a/memory.current", "4500000\n")
      .write("sys/fs/cgroup/a/memory.stat", "anon 4000000\ninactive_file 300000\n");
  EXPECT_EQ(available_memory(root.files()).value->value(), 800000U);
  root.write("sys/fs/cgroup/a/memory.max", "50000000\n");
  EXPECT_EQ(available_memory(root.files()).value->value(), 8192U * 1024);
}

TEST(Cgroup, Version2InsideANamespaceReadsTheRoot) {
  FakeRoot root;
  root.write("proc/self/cgroup", "0::/\n")
      .write("proc/self/mountinfo", v2_mount)
      .write("sys/fs/cgroup/cpu.max", "50000 100000\n")
      .write("sys/fs/cgroup/memory.max", "max\n");
  const CgroupLimits limits = read_cgroup_limits(root.files());
  EXPECT_DOUBLE_EQ(*limits.cores, 0.5);
  EXPECT_FALSE(limits.memory);
}

TEST(Cgroup, Version1ReadsQuotaAndIgnoresTheNumberForNoLimit) {
  FakeRoot root;
  root.write("proc/self/cgroup", "4:memory:/job\n3:cpu,cpuacct:/job\n0::/\n")
      .write("proc/self/mountinfo",
             "31 2 0:1 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
             "32 2 0:2 / /sys/fs/cgroup/memory rw,shared:3 master:1 - cgroup cgroup rw,memory\n")
      .write("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "200000\n")
      .write("sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n")
      .write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n")
      .write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n")
      .write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "9223372036854771712\n");
  const CgroupLimits limits = read_cgroup_limits(root.files());
  ASSERT_TRUE(limits.cores);
  EXPECT_DOUBLE_EQ(*limits.cores, 2.0);
  EXPECT_FALSE(limits.memory);
}

TEST(Cgroup, AMountedSubtreeIsSeenFromItsOwnRoot) {
  FakeRoot root;
  root.write("proc/self/cgroup", "4:memory:/docker/abc\n")
      .write("proc/self/mountinfo",
             "32 2 0:2 /docker/abc /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n")
      .write("sys/fs/cgroup/memory/memory.limit_in_bytes", "1073741824\n");
  EXPECT_EQ(read_cgroup_limits(root.files()).memory.value->value(), 1073741824U);
}

TEST(Cgroup, MalformedFilesAreNoLimit) {
  FakeRoot root;
  root.write("proc/self/cgroup", "nonsense\n0::/\n")
      .write("proc/self/mountinfo", std::string("short line\n") + v2_mount)
      .write("sys/fs/cgroup/cpu.max", "lots\n")
      .write("sys/fs/cgroup/memory.max", "-5\n");
  const CgroupLimits limits = read_cgroup_limits(root.files());
  EXPECT_FALSE(limits.cores);
  EXPECT_FALSE(limits.memory);
}

}  // namespace
}  // namespace heteroperf
