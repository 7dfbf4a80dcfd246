#include "runners/cluster/machine.hpp"

#include <cstdlib>

#include "metrics/base/error.hpp"
#include "runners/cluster/cluster.hpp"
#include "runners/cluster/cluster_json.hpp"
#include "tests/unit/runners/cluster/fake_root.hpp"

namespace heteroperf {
namespace {

using nlohmann::json;
using test::FakeRoot;

/// Every leaf object of the form {"source", …} below `value`.
void collect_observed(const json& value, std::vector<json>& found) {
  if (value.is_object() && value.contains("source")) found.push_back(value);
  if (!value.is_structured()) return;
  for (const auto& child : value) collect_observed(child, found);
}

Machine fake_machine(FakeRoot& root) {
  root.write("etc/os-release", "NAME=x\nPRETTY_NAME=\"Test Linux 1\"\n")
      .write("proc/cpuinfo", "processor\t: 0\nmodel name\t: Test Chip\nmicrocode\t: 0x1f\n")
      .write("proc/meminfo", "MemTotal:       16384 kB\nMemAvailable:    8192 kB\n")
      .write("proc/self/status", "Cpus_allowed_list:\t0-1\n")
      .write("proc/cmdline", "root=/dev/x isolcpus=1 secret=1 nosmt\n")
      .write("proc/loadavg", "0.25 0.5 0.75 1/99 1234\n")
      .write("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n")
      .write("sys/devices/system/cpu/intel_pstate/no_turbo", "1\n")
      .write(".dockerenv", "");
  return probe_machine(root.files());
}

TEST(ProbeMachine, ReadsTheGivenRoot) {
  FakeRoot root;
  const Machine machine = fake_machine(root);
  EXPECT_EQ(*machine.os, "Test Linux 1");
  EXPECT_EQ(*machine.cpu_model, "Test Chip");
  EXPECT_EQ(*machine.governor, "performance");
  EXPECT_EQ(*machine.container, "docker");
  EXPECT_EQ(machine.memory_total.value->value(), 16384U * 1024);
  EXPECT_EQ(machine.memory_available.value->value(), 8192U * 1024);
  EXPECT_EQ(machine.cores.cpus, (CpuSet{0, 1}));
  EXPECT_FALSE(machine.memory_limit);
}

TEST(ProbeMachine, TheGroupLimitTightensTheMemory) {
  FakeRoot root;
  root.write("proc/self/cgroup", "0::/\n")
      .write("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
      .write("sys/fs/cgroup/memory.max", "1048576\n");
  const Machine machine = fake_machine(root);
  EXPECT_EQ(machine.usable_memory(), Bytes(1048576));
  const DeviceClass device = cpu_device_class(machine, 2, 3);
  EXPECT_EQ(device.memory, Bytes(524288));
  EXPECT_EQ(device.count, 2);
  EXPECT_EQ(device.threads, 3);
  EXPECT_FALSE(device.emulated());
}

TEST(ProbeMachine, AnEmptyRootLeavesReasonsNotBlanks) {
  FakeRoot root;
  const json system = to_json(probe_machine(root.files()));
  std::vector<json> observed;
  collect_observed(system, observed);
  EXPECT_GT(observed.size(), 20U);
  for (const json& entry : observed) {
    EXPECT_FALSE(entry.at("source").get<std::string>().empty()) << entry;
    if (entry.contains("value")) {
      EXPECT_NE(entry.at("value"), "") << entry;
    } else {
      EXPECT_FALSE(entry.at("reason").get<std::string>().empty()) << entry;
      EXPECT_TRUE(entry.at("status") == "unavailable" || entry.at("status") == "denied") << entry;
    }
  }
  EXPECT_EQ(system.at("cpu").at("model").at("source"), "/proc/cpuinfo");
}

TEST(ProbeMachine, FactsKeepTheirTypes) {
  FakeRoot root;
  const json facts = to_json(fake_machine(root)).at("facts");
  EXPECT_EQ(facts.at("microcode").at("value"), "0x1f");
  EXPECT_EQ(facts.at("intel_no_turbo").at("value"), 1);
  EXPECT_DOUBLE_EQ(facts.at("load_average_1min").at("value").get<double>(), 0.25);
  EXPECT_EQ(facts.at("kernel_flags").at("value"), "isolcpus=1 nosmt");
  EXPECT_EQ(facts.at("boost").at("status"), "unavailable");
}

TEST(ProbeTopology, CountsWhatHwlocReports) {
  setenv("HWLOC_SYNTHETIC", "package:2 [numa(memory=1073741824)] l3:1(size=8388608) core:4 pu:2",
         1);
  const Topology topology = probe_topology();
  unsetenv("HWLOC_SYNTHETIC");
  ASSERT_TRUE(topology.sockets) << topology.reason;
  EXPECT_EQ(*topology.sockets, 2);
  EXPECT_EQ(*topology.cores, 8);
  EXPECT_EQ(*topology.logical_cpus, 16);
  ASSERT_EQ(topology.numa_nodes.size(), 2U);
  EXPECT_EQ(topology.numa_nodes[1].memory, Bytes(1073741824));
  EXPECT_EQ(to_list(topology.numa_nodes[1].cpus), "8-15");
  ASSERT_EQ(topology.caches.size(), 1U);
  EXPECT_EQ(topology.caches[0].level, 3);
  EXPECT_EQ(topology.caches[0].size, Bytes(8388608));
  EXPECT_EQ(topology.caches[0].count, 2);
  EXPECT_EQ(last_level_cache(topology), Bytes(2 * 8388608));
}

TEST(LastLevelCache, IsTheSumOfAllCachesOfTheLastLevel) {
  Topology topology;
  EXPECT_EQ(last_level_cache(topology), Bytes(0));
  topology.caches = {{1, "data", Bytes(32), 8},
                     {1, "instruction", Bytes(64), 8},
                     {3, "unified", Bytes(1000), 2},
                     {3, "unified", Bytes(500), 1},
                     {2, "unified", Bytes(100), 8}};
  EXPECT_EQ(last_level_cache(topology), Bytes(2500));
}

TEST(ProbeMachine, ThisMachineHasAHostAndCores) {
  const Machine machine = probe_machine();
  EXPECT_TRUE(machine.host);
  EXPECT_TRUE(machine.kernel);
  EXPECT_GE(machine.cores.count(), 1);
  EXPECT_LE(machine.cores.count(), static_cast<int>(machine.cores.cpus.size()));
  EXPECT_GT(machine.usable_memory().value(), 0U);
}

DeviceClass read_back(const json& device) {
  DocumentProblems problems("report");
  const DeviceClass back = read_device_class(Json(device), "devices[3]", problems);
  problems.throw_if_any();
  return back;
}

TEST(DeviceClassJson, RoundTrips) {
  DeviceClass device{.name = "fast",
                     .kind = DeviceKind::paced,
                     .memory = Bytes(1U << 30),
                     .count = 4,
                     .threads = 2,
                     .rates = {{"fp32", OpsPerSecond(1.5e12)}}};
  const DeviceClass back = read_back(to_json(device));
  EXPECT_EQ(to_json(back), to_json(device));
  EXPECT_TRUE(back.emulated());
}

TEST(DeviceClassJson, ReportsEveryProblemAtOnce) {
  const json bad = {{"name", ""},
                    {"kind", "cpus"},
                    {"counts", 1},
                    {"threads", 0},
                    {"rates_ops_per_second", {{"fp32", -1}}}};
  try {
    read_back(bad);
    FAIL() << "accepted " << bad;
  } catch (const UserError& error) {
    const std::string text = error.what();
    EXPECT_EQ(error.problems().size(), 6U) << text;
    for (const char* expected :
         {"devices[3].name", "Did you mean \"cpu\"?", "Did you mean \"count\"?",
          "devices[3].threads is 0", "positive rates", "devices[3].memory_bytes is missing"}) {
      EXPECT_NE(text.find(expected), std::string::npos) << expected << " in\n" << text;
    }
  }
  EXPECT_THROW(read_back(json::array()), UserError);
}

}  // namespace
}  // namespace heteroperf
