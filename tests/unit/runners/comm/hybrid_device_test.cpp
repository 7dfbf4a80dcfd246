// The hybrid communicator over device memory: played NCCL inside each cluster, staging through the
// host between them.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "metrics/base/error.hpp"
#include "runners/comm/element_types.hpp"
#include "runners/comm/hybrid/hybrid_communicator.hpp"
#include "runners/comm/nccl/device_world.hpp"
#include "tests/unit/runners/comm/communicator_cases.hpp"
#include "tests/unit/runners/comm/hybrid_configs.hpp"
#include "tests/unit/runners/comm/played_nccl.hpp"
#include "tests/unit/runners/comm/typed_values.hpp"

namespace heteroperf {
namespace {

/// One rank: a played library for its cluster, and the group over both.
struct DeviceRank {
  std::unique_ptr<Communicator> part;  ///< its cluster, over the hosts
  std::shared_ptr<PlayedNccl> library;
  std::unique_ptr<HybridCommunicator> group;
};

DeviceRank make_rank(World& world, const HybridConfig& config, const Script& script) {
  const RankId self = world.communicator->rank();
  const RankCluster& own = config.clusters.clusters[config.clusters.cluster_of(self)];
  DeviceRank rank;
  rank.part = world.communicator->split(static_cast<int>(config.clusters.cluster_of(self)), 0);
  rank.library = std::make_shared<PlayedNccl>(*rank.part, script);
  auto inside =
      make_nccl_communicator(rank.library, {}, rank.part->rank(), own.ranks, watch_of(world));
  rank.group = make_hybrid_communicator(std::move(world.communicator), config, std::move(inside));
  return rank;
}

/// `body` gets the group for buffers on the host, and the hybrid communicator itself.
void run_on_devices(const HybridConfig& config,
                    const std::function<void(Communicator&, HybridCommunicator&)>& body) {
  run_on_threads(config.clusters.ranks(), {}, [&](World& world) {
    DeviceRank rank = make_rank(world, config, {});
    HybridCommunicator& hybrid = *rank.group;
    const auto group = make_on_device(std::move(rank.group));
    body(*group, hybrid);
    group->barrier();
  });
}

// ---- every operation behaves as on any transport

struct DeviceCase {
  CommunicatorCase tested;
  std::string pattern;
  Algorithm algorithm;
};

/// Inside a cluster messages are NCCL's, which has no tags: these rely on them.
bool needs_tags(const std::string& name) {
  return name == "random_operations" || name == "messages_match_by_tag_in_order" ||
         name == "waits_in_any_order";
}

bool has_single_ranks_only(std::string pattern) {
  std::sort(pattern.begin(), pattern.end());
  return std::adjacent_find(pattern.begin(), pattern.end()) == pattern.end();
}

std::vector<DeviceCase> device_cases() {
  std::vector<DeviceCase> cases;
  for (const CommunicatorCase& one : communicator_cases()) {
    for (const char* pattern : {"ab", "abc", "aab", "abab", "AbABcB"}) {
      if (needs_tags(one.name) && !has_single_ranks_only(pattern)) continue;
      cases.push_back({one, pattern, Algorithm::split_rail});
    }
    if (needs_tags(one.name)) continue;
    cases.push_back({one, "aabb", Algorithm::leader});
    cases.push_back({one, "abab", Algorithm::native});
    cases.push_back({one, "aab", Algorithm::ring});
    cases.push_back({one, "aa", Algorithm::native});
  }
  return cases;
}

class DeviceHybrid : public testing::TestWithParam<DeviceCase> {};

TEST_P(DeviceHybrid, BehavesAsATransport) {
  const DeviceCase& one = GetParam();
  HybridConfig config = config_of(one.pattern, one.algorithm);
  if (std::strcmp(one.tested.name, "large_buffers") == 0) config.segment = Bytes(1 << 18);
  run_on_devices(config, [&](Communicator& group, HybridCommunicator&) {
    EXPECT_EQ(group.transport(), "hybrid");
    run_case(one.tested, group);
  });
}

INSTANTIATE_TEST_SUITE_P(PlayedNccl, DeviceHybrid, testing::ValuesIn(device_cases()),
                         [](const auto& instance) {
                           const DeviceCase& one = instance.param;
                           return std::string(one.tested.name) + "_" + one.pattern + "_" +
                                  to_string(one.algorithm);
                         });

// ---- bits and bytes

/// Whole numbers, so that sums inside clusters are exact in any order.
std::vector<float> whole_numbers(int rank, std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>(sample(DataType::f32, rank, i) * 1001);
  }
  return values;
}

TEST(DeviceHybridSums, HaveTheBitsOfTheHosts) {
  for (const std::string pattern : {"ab", "aab", "abab", "abc", "AbABcB"}) {
    for (const WireFormat wire : {WireFormat::fp32, WireFormat::bf16, WireFormat::int8}) {
      const HybridConfig config = config_of(pattern, Algorithm::leader, wire);
      const std::size_t count = 9001;
      std::vector<float> on_hosts(count);
      run_on_threads(config.clusters.ranks(), {}, [&](World& world) {
        const auto group = make_hybrid_communicator(std::move(world.communicator), config);
        auto values = whole_numbers(group->rank().value(), count);
        group->all_reduce(std::span<float>(values));
        if (group->rank() == RankId(0)) on_hosts = values;
      });
      run_on_devices(config, [&](Communicator& group, HybridCommunicator& hybrid) {
        auto values = whole_numbers(group.rank().value(), count);
        group.all_reduce(std::span<float>(values));
        EXPECT_EQ(values, on_hosts) << pattern << ' ' << to_string(wire);
        const Choice choice = hybrid.choice(Bytes(4 * count), DataType::f32);
        EXPECT_EQ(choice.wire, wire);
        EXPECT_EQ(choice.segment, Bytes(1024));
      });
    }
  }
}

TEST(DeviceHybridSums, OfTypesThatCannotBeEncodedAreRefused) {
  run_on_devices(config_of("ab", Algorithm::leader, WireFormat::bf16),
                 [](Communicator& group, HybridCommunicator&) {
                   std::vector<double> values(10);
                   EXPECT_THROW(group.all_reduce(std::span<double>(values)), UserError);
                   std::vector<float> plain(10, 1.0F);
                   group.all_reduce(std::span<float>(plain), Reduction::max);
                   EXPECT_EQ(plain, std::vector<float>(10, 1.0F));
                 });
}

/// What all ranks sent to other clusters, as (logical, wire).
template <class Operation>
std::pair<std::uint64_t, std::uint64_t> crossing(const HybridConfig& config, Operation operation) {
  std::atomic<std::uint64_t> logical{0}, wire{0};
  run_on_devices(config, [&](Communicator& group, HybridCommunicator& hybrid) {
    operation(group);
    logical += hybrid.traffic().logical.value();
    wire += hybrid.traffic().wire.value();
  });
  return {logical, wire};
}

TEST(DeviceHybridTraffic, IsThatOfTheFormulas) {
  const std::size_t count = 6 * 1024;
  std::vector<float> ones(count, 1.0F);
  const auto all_reduce = [&](Communicator& group) {
    auto values = ones;
    group.all_reduce(std::span<float>(values));
  };
  for (const std::string pattern : {"abab", "AABB", "abc"}) {
    const std::uint64_t clusters = clusters_of(pattern).clusters.size(), bytes = 4 * count;
    const auto fp32 = crossing(config_of(pattern, Algorithm::split_rail), all_reduce);
    EXPECT_EQ(fp32.first, 2 * (clusters - 1) * bytes) << pattern;
    EXPECT_EQ(fp32.second, fp32.first);
    const auto int8 =
        crossing(config_of(pattern, Algorithm::split_rail, WireFormat::int8), all_reduce);
    EXPECT_EQ(int8.first, clusters * (clusters - 1) * bytes) << pattern;
    EXPECT_EQ(int8.second, clusters * (clusters - 1) * (count + count / 256 * 4));
    const HybridConfig config = config_of(pattern, Algorithm::split_rail);
    const RankId last(config.clusters.ranks() - 1);
    EXPECT_EQ(crossing(config,
                       [&](Communicator& group) {
                         auto values = ones;
                         group.broadcast(std::span<float>(values), last);
                       })
                  .second,
              (clusters - 1) * bytes);
    EXPECT_EQ(crossing(config,
                       [&](Communicator& group) {
                         auto result = ones;
                         group.reduce(std::span<const float>(ones), std::span<float>(result), last);
                       })
                  .second,
              (clusters - 1) * bytes);
  }
}

// ---- failures

/// What every rank threw; the run as a whole fails.
std::vector<std::string> errors_of(const HybridConfig& config, const Script& script, RankId broken,
                                   const std::function<void(Communicator&)>& work) {
  std::vector<std::string> texts(static_cast<std::size_t>(config.clusters.ranks()));
  EXPECT_THROW(run_on_threads(config.clusters.ranks(), {},
                              [&](World& world) {
                                const RankId self = world.communicator->rank();
                                try {
                                  DeviceRank rank =
                                      make_rank(world, config, self == broken ? script : Script{});
                                  const auto group = make_on_device(std::move(rank.group));
                                  work(*group);
                                  group->barrier();
                                } catch (const Error& error) {
                                  texts[self.index()] = error.what();
                                  throw;
                                }
                              }),
               Error);
  return texts;
}

void sum_something(Communicator& group) {
  std::vector<float> values(60000, 1.0F);
  group.all_reduce(std::span<float>(values));
}

void broadcast_something(Communicator& group) {
  std::vector<float> values(60000, 1.0F);
  group.broadcast(std::span<float>(values), RankId(0));
}

void expect_everybody_told(const std::vector<std::string>& texts, RankId broken,
                           const std::string& wanted) {
  for (std::size_t r = 0; r < texts.size(); ++r) EXPECT_NE(texts[r], "") << "rank " << r;
  const std::string& text = texts[broken.index()];
  EXPECT_NE(text.find(wanted), std::string::npos) << text;
}

TEST(DeviceHybridFailures, ACopyThatFailsEndsTheRun) {
  for (const auto& work : {sum_something, broadcast_something}) {
    for (const RankId broken : {RankId(0), RankId(1)}) {
      Script script;
      script.failing_copy = 9;
      expect_everybody_told(errors_of(config_of("abab", Algorithm::leader), script, broken, work),
                            broken, "a copy between played:0 and the host failed");
    }
  }
}

TEST(DeviceHybridFailures, ACopyThatNeverEndsIsNamed) {
  for (const auto& work : {sum_something, broadcast_something}) {
    HybridConfig config = config_of("abab", Algorithm::leader);
    config.staging.timeout_s = 0.2;
    Script script;
    script.endless_copy = 5;
    expect_everybody_told(errors_of(config, script, RankId(1), work), RankId(1),
                          "on played:0 does not end");
  }
}

TEST(DeviceHybridFailures, ADeathDuringAStagedBridgeReachesEverybody) {
  for (const std::string pattern : {"ab", "aabb", "abcabc"}) {
    const HybridConfig config = config_of(pattern, Algorithm::split_rail);
    const RankId dying(config.clusters.ranks() - 1);
    const auto texts = errors_of(config, {}, dying, [&](Communicator& group) {
      sum_something(group);
      // The others are in the middle of their sums by now, or come to them later.
      if (group.rank() == dying) throw UserError("no more");
      sum_something(group);
    });
    expect_everybody_told(texts, dying, "no more");
  }
}

TEST(DeviceHybridSetup, ImpossibleStagingIsRefused) {
  const auto make = [](int slots, double timeout_s) {
    HybridConfig config = config_of("ab", Algorithm::leader);
    config.staging.slots = slots;
    config.staging.timeout_s = timeout_s;
    run_on_threads(2, {}, [&](World& world) { make_rank(world, config, {}); });
  };
  EXPECT_NO_THROW(make(3, 30));
  EXPECT_THROW(make(2, 30), Error);
  EXPECT_THROW(make(3, 0), Error);
}

TEST(DeviceHybridSetup, AWorldOnDevicesIsRefused) {
  EXPECT_THROW(run_on_threads(1, {},
                              [](World& world) {
                                auto part = world.communicator->split(0, 0);
                                auto library = std::make_shared<PlayedNccl>(*part, Script{});
                                auto group = make_nccl_communicator(library, {}, RankId(0),
                                                                    {RankId(0)}, watch_of(world));
                                HybridConfig config;
                                config.clusters = clusters_by_label({""}, 1);
                                make_hybrid_communicator(std::move(group), config);
                              }),
               Error);
}

TEST(DeviceHybridGroups, KeepTheirClustersAndDevices) {
  run_on_devices(config_of("aAbBab", Algorithm::leader),
                 [](Communicator& group, HybridCommunicator&) {
                   const int self = group.rank().value();
                   const auto part = group.split(self < 2 ? 0 : 1, -self);
                   EXPECT_EQ(part->size(), self < 2 ? 2 : 4);
                   std::vector<std::int64_t> ones(5000, 1);
                   part->all_reduce(std::span<std::int64_t>(ones));
                   EXPECT_EQ(ones, std::vector<std::int64_t>(5000, part->size()));
                 });
}

}  // namespace
}  // namespace heteroperf
