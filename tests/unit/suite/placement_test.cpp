#include <gtest/gtest.h>

#include <mutex>
#include <nlohmann/json.hpp>

#include "metrics/base/error.hpp"
#include "runners/cluster/machine.hpp"
#include "runners/comm/world.hpp"
#include "suite/config/placement.hpp"
#include "suite/config/run_documents_json.hpp"
#include "suite/ranks/rank_session.hpp"

namespace heteroperf {
namespace {

UsableCores four_cores() {
  UsableCores cores;
  cores.cpus = {0, 1, 2, 3};
  cores.physical = 4;
  return cores;
}

TEST(Placement, TakesOneRankPerCore) {
  const Placement placement = choose_placement({}, four_cores(), 0);
  EXPECT_EQ(placement.ranks, 4);
  EXPECT_EQ(placement.threads_per_rank, 1);
  ASSERT_EQ(placement.cpus.size(), 4u);
  EXPECT_EQ(placement.cpus[2], CpuSet{2});
}

TEST(Placement, AsManyRanksMeasureAsHaveCoresOfTheirOwn) {
  struct Case {
    int ranks, threads, measuring;
  };
  for (const Case& one : {Case{1, 8, 1}, Case{2, 2, 2}, Case{3, 2, 2}, Case{4, 1, 4},
                          Case{300, 1, 4}, Case{2, 3, 1}}) {
    ScaleConfig config;
    config.ranks = one.ranks;
    config.threads_per_rank = one.threads;
    const Placement placement = choose_placement(config, four_cores(), 0);
    int measuring = 0;
    for (int rank = 0; rank < one.ranks; ++rank) measuring += measures_cpus(placement, rank);
    EXPECT_EQ(measuring, one.measuring) << one.ranks << " ranks of " << one.threads;
  }
}

TEST(Placement, EveryHostMeasuresItsOwnCores) {
  Placement placement;
  placement.ranks = 4;
  for (const char* host : {"a", "b", "a", "b"}) placement.bindings.push_back({host, {0}, ""});
  EXPECT_TRUE(measures_cpus(placement, 0));
  EXPECT_TRUE(measures_cpus(placement, 1));
  EXPECT_FALSE(measures_cpus(placement, 2));
}

TEST(Placement, ARunHoldsAllDevicesOfItsHosts) {
  ScaleConfig config;
  config.ranks = config.threads_per_rank = 1;
  Placement placement = choose_placement(config, four_cores(), 0);
  EXPECT_EQ(devices_of_hosts(placement), 4);
  placement.bindings.push_back({"another host", {0}, ""});
  placement.ranks = 2;
  EXPECT_EQ(devices_of_hosts(placement), 8);
  config.threads_per_rank = 3;
  EXPECT_EQ(devices_of_hosts(choose_placement(config, four_cores(), 0)), 1);
  config.ranks = 6;  // more than there is room for
  EXPECT_EQ(devices_of_hosts(choose_placement(config, four_cores(), 0)), 6);
}

TEST(Placement, DividesTheCoresAmongTheRanksAskedFor) {
  ScaleConfig config;
  config.ranks = 2;
  const Placement placement = choose_placement(config, four_cores(), 0);
  EXPECT_EQ(placement.threads_per_rank, 2);
  EXPECT_EQ(placement.cpus[1], (CpuSet{2, 3}));
}

TEST(Placement, DividesTheCoresByTheThreadsAskedFor) {
  ScaleConfig config;
  config.threads_per_rank = 3;
  EXPECT_EQ(choose_placement(config, four_cores(), 0).ranks, 1);
}

TEST(Placement, BindsNothingWhenRanksOutnumberCores) {
  ScaleConfig config;
  config.ranks = 9;
  const Placement placement = choose_placement(config, four_cores(), 0);
  EXPECT_EQ(placement.threads_per_rank, 1);
  EXPECT_TRUE(placement.cpus.empty());
  ASSERT_EQ(placement.bindings.size(), 9u);
  EXPECT_EQ(placement.bindings[8].unbound, "9 ranks x 1 threads on 4 cores");
  EXPECT_EQ(placement.bindings[8].cpus, four_cores().cpus);
}

TEST(Placement, CoresThatRanksShareCountOnce) {
  ScaleConfig config;
  config.ranks = 9;
  EXPECT_EQ(core_count(choose_placement(config, four_cores(), 0)), 4);
  config.ranks = 3;
  EXPECT_EQ(core_count(choose_placement(config, four_cores(), 0)), 3);
  Placement two_hosts;
  two_hosts.bindings = {{"a", {0, 1}, ""}, {"b", {0, 1}, ""}, {"b", {1}, ""}};
  EXPECT_EQ(core_count(two_hosts), 4);
  EXPECT_EQ(core_count(Placement()), 1);
}

TEST(Placement, NamesTheBindingOfEveryRank) {
  const Placement placement = choose_placement({}, four_cores(), 0);
  ASSERT_EQ(placement.bindings.size(), 4u);
  EXPECT_EQ(placement.bindings[2].cpus, CpuSet{2});
  EXPECT_EQ(placement.bindings[2].unbound, "");
  EXPECT_EQ(placement.bindings[2].host, host_name());
  ScaleConfig config;
  config.bind = CoreBinding::none;
  EXPECT_EQ(choose_placement(config, four_cores(), 0).bindings[0].unbound, "scale.bind=none");
}

Placement on_hosts(const std::vector<std::string>& hosts) {
  Placement placement;
  for (const std::string& host : hosts) placement.bindings.push_back({host, {0}, ""});
  return placement;
}

TEST(Placement, RanksOfAHostTakeItsGpusInTurn) {
  Placement placement = on_hosts({"a", "b", "a", "b"});
  std::vector<RankBinding>& bindings = placement.bindings;
  ScaleConfig config;
  config.device.names = {"cuda"};
  give_devices(config, placement);
  EXPECT_EQ(bindings[0].gpu, 0);
  EXPECT_EQ(bindings[1].gpu, 0);
  EXPECT_EQ(bindings[2].gpu, 1);
  EXPECT_EQ(bindings[3].gpu, 1);
}

TEST(Placement, RanksOfOneRunComputeOnUnlikeDevices) {
  Placement placement = on_hosts({"a", "a", "a"});
  std::vector<RankBinding>& bindings = placement.bindings;
  ScaleConfig config;
  config.device.names = {"cuda", "cpu", "cuda"};
  give_devices(config, placement);
  EXPECT_EQ(bindings[0].gpu, 0);
  EXPECT_EQ(bindings[1].gpu, std::nullopt);
  EXPECT_EQ(bindings[1].device, "cpu");
  EXPECT_EQ(bindings[2].gpu, 1);
  EXPECT_EQ(choose_placement(config, four_cores(), 0).ranks, 3);
  config.device.names = {"cuda", "cpu"};
  EXPECT_THROW(give_devices(config, placement), UserError);
}

TEST(Placement, EveryRankHasTheDeviceThatIsNamed) {
  Placement placement = on_hosts({"a", "a", "a"});
  ScaleConfig config;
  config.device.names = {"cpu:exact", "cuda", "emulated:bf16_products"};
  give_devices(config, placement);
  EXPECT_EQ(placement.devices[0].kernels, KernelSet::exact);
  EXPECT_TRUE(placement.devices[1].on_gpu);
  EXPECT_EQ(placement.devices[2].chip->products, OperandFormat::bf16);
  EXPECT_EQ(placement.bindings[2].device, "emulated:bf16_products");
}

TEST(Placement, ARankHasTheModelAndMemoryOfItsGpu) {
  const std::vector<CudaDevice> devices{{"NVIDIA H200", 150'000'000'000},
                                        {"NVIDIA A100", 80'000'000'000}};
  Placement placement = on_hosts({"a", "a", "a", "a"});
  std::vector<RankBinding>& bindings = placement.bindings;
  ScaleConfig config;
  config.device.names = {"cuda", "cuda", "cuda", "cpu"};
  give_devices(config, placement);
  for (RankBinding& binding : bindings) name_gpu(devices, binding);
  EXPECT_EQ(bindings[1].device, "NVIDIA A100");
  EXPECT_EQ(bindings[1].device_memory_bytes, 80'000'000'000u);
  EXPECT_EQ(bindings[2].gpu, 0);  // shared with the first
  EXPECT_EQ(bindings[2].device, "NVIDIA H200");
  EXPECT_EQ(bindings[3].gpu, std::nullopt);
  EXPECT_EQ(bindings[3].device, "cpu");
  EXPECT_EQ(bindings[3].device_memory_bytes, 0u);
}

TEST(Placement, TheRecordNamesTheGpuOfEveryRankThatHasOne) {
  Placement placement;
  placement.ranks = 2;
  placement.bindings = {{"a", {0}, "", "NVIDIA H200", 3, 150'000'000'000}, {"b", {0, 1}, "why"}};
  const auto system = nlohmann::json::parse(system_text(placement, "2.11.0"));
  EXPECT_EQ(system.at("binding"), nlohmann::json::parse(R"([
      {"rank":0,"host":"a","cpus":"0","bound":true,"device":"NVIDIA H200","gpu":3,
       "gpu_name":"NVIDIA H200"},
      {"rank":1,"host":"b","cpus":"0-1","bound":false,"reason":"why","device":"cpu"}])"));
}

TEST(Placement, OneRankTakesAGpuUnlessToldOtherwise) {
  ScaleConfig config;
  config.device.names = {"cuda"};
  EXPECT_EQ(choose_placement(config, four_cores(), 0).ranks, 1);
  config.ranks = 2;
  EXPECT_EQ(choose_placement(config, four_cores(), 0).ranks, 2);
}

TEST(Placement, EveryRankHearsTheBindingOfEveryRank) {
  std::mutex mutex;
  std::vector<std::vector<RankBinding>> heard;
  run_on_threads(3, {}, [&](World& world) {
    const int rank = world.communicator->rank().value();
    const std::string number = std::to_string(rank);
    const RankBinding mine{"node" + std::string(static_cast<std::size_t>(rank), '0') + number,
                           rank == 1 ? CpuSet{} : CpuSet{rank, rank + 4},
                           rank == 2 ? "no reason, really" : "",
                           rank == 1 ? "NVIDIA H200" : "cpu",
                           rank == 1 ? std::optional(7) : std::nullopt,
                           rank == 1 ? 150'000'000'000u : 0u};
    auto all = gather_bindings(*world.communicator, mine);
    const std::lock_guard lock(mutex);
    heard.push_back(std::move(all));
  });
  ASSERT_EQ(heard.size(), 3u);
  for (const auto& all : heard) {
    ASSERT_EQ(all.size(), 3u);
    EXPECT_EQ(all[2].host, "node002");
    EXPECT_EQ(all[0].cpus, (CpuSet{0, 4}));
    EXPECT_TRUE(all[1].cpus.empty());
    EXPECT_EQ(all[1].unbound, "");
    EXPECT_EQ(all[1].device, "NVIDIA H200");
    EXPECT_EQ(all[1].gpu, 7);
    EXPECT_EQ(all[1].device_memory_bytes, 150'000'000'000u);
    EXPECT_EQ(all[2].device, "cpu");
    EXPECT_EQ(all[2].gpu, std::nullopt);
    EXPECT_EQ(all[2].unbound, "no reason, really");
  }
}

TEST(Placement, RefusesRanksUnlikeTheLaunchersWorld) {
  ScaleConfig config;
  config.ranks = 3;
  EXPECT_THROW(choose_placement(config, four_cores(), 2), UserError);
  config.ranks = 2;
  EXPECT_EQ(choose_placement(config, four_cores(), 2).ranks, 2);
}

TEST(Placement, RanksThatShareAMaskShareItsCores) {
  const Placement shared = choose_launched_placement({}, four_cores(), 8, {2, 2, 1});
  EXPECT_EQ(shared.ranks, 8);
  EXPECT_EQ(shared.threads_per_rank, 2);
  EXPECT_EQ(shared.cpus.front(), (CpuSet{2, 3}));
  ASSERT_EQ(shared.bindings.size(), 1u);
  EXPECT_EQ(shared.bindings.front().cpus, (CpuSet{2, 3}));
  const Placement own = choose_launched_placement({}, four_cores(), 8, {2, 1, 0});
  EXPECT_EQ(own.threads_per_rank, 4);
}

}  // namespace
}  // namespace heteroperf
