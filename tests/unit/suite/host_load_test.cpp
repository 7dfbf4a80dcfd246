#include "suite/watch/host_load.hpp"

#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "metrics/base/clock.hpp"
#include "tests/unit/results/sample_run.hpp"

namespace heteroperf {
namespace {

/// Files of a kernel with CPUs 0 to 2.
class HostLoadTest : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) const {
    const std::filesystem::path path = root_.path() / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  void write_stat(int user_of_cpu1) const {
    write("proc/stat", "cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 1 2 3 1000 500 4 5 6 7 8\ncpu1 " +
                           std::to_string(user_of_cpu1) + " 0 0 1000 0 0 0 0 0 0\nintr 1 2\n");
  }
  HostCounters read(const CpuSet& cpus) const { return read_host_counters(cpus, root_.path()); }

  TemporaryFolder root_;
  const double tick_s_ = 1.0 / static_cast<double>(sysconf(_SC_CLK_TCK));
};

TEST_F(HostLoadTest, BusyIsAllButIdleAndWaiting) {
  write_stat(40);
  EXPECT_DOUBLE_EQ(*read({0}).busy_s, 21 * tick_s_);
  EXPECT_DOUBLE_EQ(*read({0, 1}).busy_s, 61 * tick_s_);
}

TEST_F(HostLoadTest, WhatIsNotThereIsAbsent) {
  EXPECT_FALSE(read({0}).busy_s.has_value());
  write_stat(1);
  EXPECT_FALSE(read({0, 7}).busy_s.has_value());
  EXPECT_FALSE(read({}).busy_s.has_value());
  write("proc/stat", "cpu0 1 2\n");
  const HostCounters counters = read({0});
  EXPECT_FALSE(counters.busy_s.has_value());
  EXPECT_FALSE(counters.thermal_events.has_value());
  EXPECT_FALSE(counters.quota_throttled_s.has_value());
}

TEST_F(HostLoadTest, ThrottlingIsSummedOverTheCpus) {
  for (const char* cpu : {"0", "1"}) {
    const std::string folder =
        std::string("sys/devices/system/cpu/cpu") + cpu + "/thermal_throttle/";
    write(folder + "core_throttle_count", "3\n");
    write(folder + "core_throttle_total_time_ms", "250\n");
  }
  EXPECT_EQ(read({0, 1}).thermal_events, 6u);
  EXPECT_DOUBLE_EQ(*read({0, 1}).thermal_throttled_s, 0.5);
  EXPECT_FALSE(read({0, 2}).thermal_events.has_value());
}

TEST_F(HostLoadTest, TheControlGroupsOwnFileCounts) {
  write("proc/self/cgroup", "1:cpu:/old\n0::/job/step\n");
  write("sys/fs/cgroup/job/step/cpu.stat",
        "usage_usec 9\nnr_throttled 2\nthrottled_usec 1500000\n");
  EXPECT_DOUBLE_EQ(*read({0}).quota_throttled_s, 1.5);
}

TEST_F(HostLoadTest, TheLoadIsTheMeanOverAMinute) {
  EXPECT_FALSE(read({0}).load.has_value());
  write("proc/loadavg", "1.25 0.50 0.10 1/80 11206\n");
  EXPECT_EQ(read({0}).load, 1.25);
  const auto load = host_load_between({0, 0, 0, 0, 1.25}, {1, 0, 0, 0, 2.5}, 4, 1, 0);
  EXPECT_EQ(load->load_before, 1.25);
  EXPECT_EQ(load->load_after, 2.5);
}

TEST_F(HostLoadTest, OthersAreWhatIsBusyAndNotOurs) {
  const HostCounters before{10, 5, 1.0, {}}, after{30, 7, 0.5, 3.0};
  const auto load = host_load_between(before, after, 4, 8, 12);
  ASSERT_TRUE(load.has_value());
  EXPECT_DOUBLE_EQ(load->other_cpus, 2);
  EXPECT_EQ(load->cpus, 8u);
  EXPECT_EQ(load->thermal_events, 2u);
  EXPECT_EQ(load->thermal_throttled_s, 0.0);  // counted anew since
  EXPECT_FALSE(load->quota_throttled_s.has_value());
  EXPECT_EQ(host_load_between(before, after, 4, 8, 25)->other_cpus, 0);  // clocks of two kinds
  EXPECT_FALSE(host_load_between({}, after, 4, 8, 1).has_value());
  EXPECT_FALSE(host_load_between(before, after, 0, 8, 1).has_value());
}

TEST_F(HostLoadTest, AnotherProcessIsReadByItsNumber) {
  write("proc/17/stat", "17 (a (b) 1 2) S 1 17 17 0 -1 4194560 9 8 7 6 30 12 5 4 20 0 1 0\n");
  EXPECT_DOUBLE_EQ(*process_cpu_s(17, root_.path()), 42 * tick_s_);
  write("proc/18/stat", "18 (short) S 1 18\n");
  EXPECT_FALSE(process_cpu_s(18, root_.path()).has_value());
  EXPECT_FALSE(process_cpu_s(19, root_.path()).has_value());
}

TEST_F(HostLoadTest, TheKernelTellsOfThisProcessAsItDoesItself) {
  const double begin_s = process_cpu_s();
  while (process_cpu_s() < begin_s + 0.1) {
  }
  const double before_s = process_cpu_s();
  const auto seen_s = process_cpu_s(getpid());
  if (!seen_s) GTEST_SKIP() << "no /proc/PID/stat";
  EXPECT_GE(*seen_s, before_s - 3 * tick_s_);
  EXPECT_LE(*seen_s, process_cpu_s() + 3 * tick_s_);
}

TEST_F(HostLoadTest, ThisMachineTellsOfItself) {
  const CpuSet cpus = usable_cores().cpus;
  const HostCounters before = read_host_counters(cpus);
  const std::int64_t start_ns = now_ns();
  const double before_s = process_cpu_s();
  while (process_cpu_s() < before_s + 0.05) {
  }
  const auto load = host_load_between(before, read_host_counters(cpus), seconds_since(start_ns),
                                      cpus.size(), process_cpu_s() - before_s);
  if (!load) GTEST_SKIP() << "/proc/stat does not tell of these CPUs";
  EXPECT_GE(load->other_cpus, 0);
  EXPECT_GT(load->seconds, 0.04);
}

}  // namespace
}  // namespace heteroperf
