// What crosses between clusters, the choice of algorithms, setting up and splitting.
#include <gtest/gtest.h>

#include <vector>

#include "metrics/base/error.hpp"
#include "runners/comm/collectives/message_tags.hpp"
#include "runners/comm/element_types.hpp"
#include "runners/comm/hybrid/hybrid_group.hpp"
#include "tests/unit/runners/comm/hybrid_configs.hpp"
#include "tests/unit/runners/comm/typed_values.hpp"

namespace heteroperf {
namespace {

// ---- what crosses between clusters

/// All ranks' traffic since the last call, in bytes.
struct Totals {
  std::uint64_t logical = 0, wire = 0;
};

template <class Operation>
Totals crossing(const HybridConfig& config, Operation operation) {
  std::vector<Totals> sent(static_cast<std::size_t>(config.clusters.ranks()));
  run_hybrid(config, [&](HybridCommunicator& group) {
    operation(group);
    const BridgeTraffic traffic = group.traffic();
    sent[group.rank().index()] = {traffic.logical.value(), traffic.wire.value()};
  });
  Totals total;
  for (const Totals& one : sent) {
    total.logical += one.logical;
    total.wire += one.wire;
  }
  return total;
}

TEST(HybridTraffic, OfAllReducesIsThatOfTheFormulas) {
  const std::size_t count = 6 * 1024;
  const auto all_reduce = [&](HybridCommunicator& group) {
    std::vector<float> values(count, 1.0F);
    group.all_reduce(std::span<float>(values));
  };
  for (Algorithm algorithm : {Algorithm::leader, Algorithm::split_rail}) {
    for (const std::string pattern : {"aabb", "AaBb", "aabbc", "AAbBcC", "abcd"}) {
      const std::uint64_t clusters = clusters_of(pattern).clusters.size(), n = count;
      const auto fp32 = crossing(config_of(pattern, algorithm), all_reduce);
      EXPECT_EQ(fp32.logical, clusters == 2 ? 2 * 4 * n : 2 * (clusters - 1) * 4 * n) << pattern;
      EXPECT_EQ(fp32.wire, fp32.logical);
      const auto bf16 = crossing(config_of(pattern, algorithm, WireFormat::bf16), all_reduce);
      EXPECT_EQ(bf16.logical, clusters * (clusters - 1) * 4 * n) << pattern;
      EXPECT_EQ(bf16.wire, bf16.logical / 2);
      const auto int8 = crossing(config_of(pattern, algorithm, WireFormat::int8), all_reduce);
      EXPECT_EQ(int8.logical, bf16.logical);
      EXPECT_EQ(int8.wire, clusters * (clusters - 1) * (n + n / 256 * 4)) << pattern;
    }
  }
}

TEST(HybridTraffic, NoByteCrossesALinkTwice) {
  for (const std::string pattern : {"aabb", "abab", "aaab", "AbABcB", "aabcddc"}) {
    const HybridConfig config = config_of(pattern, Algorithm::split_rail);
    const auto ranks = static_cast<std::size_t>(config.clusters.ranks());
    const std::uint64_t clusters = config.clusters.clusters.size();
    const std::size_t count = 1000;
    std::vector<std::size_t> counts(ranks);
    for (std::size_t r = 0; r < ranks; ++r) counts[r] = 300 * r + 1;
    std::uint64_t all = 0;
    for (std::size_t one : counts) all += 8 * one;
    std::vector<double> values(count), whole(all / 8);

    const auto last = RankId(ranks - 1);
    EXPECT_EQ(crossing(config,
                       [&](HybridCommunicator& group) {
                         auto local = values;
                         group.broadcast(std::span<double>(local), last);
                       })
                  .wire,
              (clusters - 1) * 8 * count);
    EXPECT_EQ(crossing(config,
                       [&](HybridCommunicator& group) {
                         auto local = values;
                         group.reduce(std::span<const double>(values), std::span<double>(local),
                                      last);
                       })
                  .wire,
              (clusters - 1) * 8 * count);
    EXPECT_EQ(crossing(config,
                       [&](HybridCommunicator& group) {
                         auto every = whole;
                         const std::vector<double> local(counts[group.rank().index()]);
                         static_cast<Communicator&>(group).all_gather(
                             std::span<const double>(local), std::span<double>(every), counts);
                       })
                  .wire,
              (clusters - 1) * all);
    EXPECT_EQ(crossing(config,
                       [&](HybridCommunicator& group) {
                         std::vector<double> local(counts[group.rank().index()]);
                         static_cast<Communicator&>(group).reduce_scatter(
                             std::span<const double>(whole), std::span<double>(local), counts,
                             Reduction::sum);
                       })
                  .wire,
              (clusters - 1) * all);
  }
}

TEST(HybridTraffic, OfMessagesIsWhatLeavesTheCluster) {
  const auto sent = crossing(config_of("aab", Algorithm::native), [](HybridCommunicator& group) {
    std::vector<float> values(100);
    const std::size_t self = group.rank().index();
    if (self == 0) group.send(std::span<const float>(values), RankId(1), 5);
    if (self == 1) group.receive(std::span<float>(values), RankId(0), 5);
    if (self == 0) group.start_send(std::span<const float>(values), RankId(2), 6)->wait();
    if (self == 2) group.start_receive(std::span<float>(values), RankId(0), 6)->wait();
    const std::size_t to_each[] = {10, 20, 30};
    const std::size_t from_each[] = {10 + 10 * self, 10 + 10 * self, 10 + 10 * self};
    std::vector<float> local(60), received(30 + 30 * self);
    group.all_to_all(std::span<const float>(local), to_each, std::span<float>(received), from_each);
  });
  EXPECT_EQ(sent.wire, 400u + 2 * 30 * 4 + (10 + 20) * 4);
  EXPECT_EQ(sent.logical, sent.wire);
}

// ---- sums of other operations over encoded bridges

TEST(HybridWire, ReductionsToOneRankAreEncodedOncePerCluster) {
  const HybridConfig config = config_of("aABBbc", Algorithm::split_rail, WireFormat::bf16);
  run_hybrid(config, [](HybridCommunicator& group) {
    const std::size_t count = 1500, ranks = 6;
    // 1 + 2^-9 is 1 in bf16; sums inside the root's cluster travel encoded, too, as everybody's.
    std::vector<float> all(count * ranks, 1.0F), local(count);
    group.reduce_scatter(std::span<const float>(all), std::span<float>(local));
    for (float value : local) ASSERT_EQ(value, 6.0F);
    all.assign(count * ranks, 1.0F + 0x1p-9F);
    group.reduce_scatter(std::span<const float>(all), std::span<float>(local));
    for (float value : local) ASSERT_NEAR(value, 6.0 + 6 * 0x1p-9, 6 * 0x1p-8);
    std::vector<float> at_root(count);
    group.reduce(std::span<const float>(all.data(), count), std::span<float>(at_root), RankId(5));
    if (group.rank() == RankId(5)) {
      for (float value : at_root) ASSERT_NEAR(value, 6.0 + 6 * 0x1p-9, 6 * 0x1p-8);
    }
  });
}

TEST(HybridWire, TypesThatCannotBeEncodedAreNamed) {
  run_hybrid(config_of("ab", Algorithm::leader, WireFormat::int8), [](HybridCommunicator& group) {
    for (DataType type : {DataType::f64, DataType::i32, DataType::i64, DataType::u8}) {
      TypedValues values = samples(type, 0, 10);
      try {
        group.all_reduce(values.buffer());
        ADD_FAILURE() << to_string(type) << " was taken";
      } catch (const UserError& error) {
        EXPECT_NE(std::string(error.what()).find("f32"), std::string::npos) << error.what();
      }
      EXPECT_THROW(group.reduce(values.buffer(), values.buffer(), RankId(0)), UserError);
      group.all_reduce(values.buffer(), Reduction::max);
    }
    TypedValues half = samples(DataType::bf16, group.rank().value(), 10);
    group.all_reduce(half.buffer());
    EXPECT_EQ(
        half.wrong([](std::size_t i) { return reduced(DataType::bf16, 2, i, Reduction::sum); }),
        0u);
  });
}

// ---- choice, errors, groups of groups

TEST(HybridChoice, RulesDecideAndWireFormatsNeedBridges) {
  HybridConfig config = config_of("aabb", Algorithm::leader);
  config.rules = {{Algorithm::ring, Bytes(0), Bytes(1000)},
                  {Algorithm::split_rail, Bytes(1001), Bytes(~std::uint64_t{0})}};
  run_hybrid(config, [](HybridCommunicator& group) {
    EXPECT_EQ(group.choice(Bytes(1000), DataType::f32).algorithm, Algorithm::ring);
    EXPECT_EQ(group.choice(Bytes(1001), DataType::f32).algorithm, Algorithm::split_rail);
    EXPECT_EQ(group.choice(Bytes(1001), DataType::f32).segment, Bytes(1024));
    EXPECT_EQ(group.transport(), "hybrid");
    EXPECT_EQ(group.clusters().clusters.size(), 2u);
  });
  config.rules.clear();
  run_hybrid(config, [](HybridCommunicator& group) {
    EXPECT_EQ(group.choice(Bytes(1000), DataType::f32).algorithm, Algorithm::native);
  });
  config.wire = WireFormat::bf16;
  run_hybrid(config, [](HybridCommunicator& group) {
    EXPECT_EQ(group.choice(Bytes(1000), DataType::f32).algorithm, Algorithm::leader);
    EXPECT_EQ(group.choice(Bytes(1000), DataType::f64).algorithm, Algorithm::native);
  });
}

TEST(HybridChoice, WithoutRuleAndModelLargeOnesGoOverBridges) {
  HybridConfig config = config_of("aabb", Algorithm::leader);
  config.rules.clear();
  run_hybrid(config, [](HybridCommunicator& group) {
    EXPECT_EQ(group.choice(Bytes(8192), DataType::f64).algorithm, Algorithm::native);
    const Choice choice = group.choice(Bytes(8193), DataType::f64);
    EXPECT_EQ(choice.algorithm, Algorithm::leader);
    EXPECT_NE(choice.reason.find("several clusters"), std::string::npos) << choice.reason;
    EXPECT_FALSE(choice.predicted.has_value());
  });
  config.rules = {{Algorithm::ring, Bytes(0), Bytes(10000)}};
  run_hybrid(config, [](HybridCommunicator& group) {
    EXPECT_EQ(group.choice(Bytes(10000), DataType::f32).algorithm, Algorithm::ring);
    EXPECT_EQ(group.choice(Bytes(10001), DataType::f32).algorithm, Algorithm::leader);
  });
  config.rules.clear();
  config.clusters = clusters_of("AABB");
  run_hybrid(config, [](HybridCommunicator& group) {
    EXPECT_EQ(group.choice(Bytes(1 << 20), DataType::f32).algorithm, Algorithm::split_rail);
  });
  config.clusters = clusters_of("aaaa");
  run_hybrid(config, [](HybridCommunicator& group) {
    EXPECT_EQ(group.choice(Bytes(1 << 20), DataType::f32).algorithm, Algorithm::native);
  });
}

/// A model is not split: it was measured with all ranks at work.
TEST(HybridChoice, AGroupAcrossClustersKeepsItsBridges) {
  HybridConfig config = config_of("aabb", Algorithm::leader);
  config.rules.clear();
  config.model.emplace();
  config.model->clusters = config.clusters;
  const LinkCurve link(Seconds(1e-5), BytesPerSecond(1e9));
  config.model->inside = {link, link};
  config.model->between = config.model->native = link;
  run_hybrid(config, [](HybridCommunicator& group) {
    const auto part = group.split(group.rank().value() % 2, 0);
    const auto& hybrid = dynamic_cast<HybridCommunicator&>(*part);
    ASSERT_EQ(hybrid.clusters().clusters.size(), 2u);
    EXPECT_EQ(hybrid.choice(Bytes(1 << 20), DataType::f32).algorithm, Algorithm::leader);
    std::vector<std::int64_t> ones(5000, 1);
    part->all_reduce(std::span<std::int64_t>(ones));
    EXPECT_EQ(ones, std::vector<std::int64_t>(5000, 2));
    EXPECT_GT(hybrid.traffic().wire.value(), 0u);
  });
}

TEST(HybridChoice, TellsTheWireThatTravels) {
  HybridConfig config = config_of("aabb", Algorithm::leader, WireFormat::int8);
  config.rules = {{Algorithm::ring, Bytes(0), Bytes(1000)},
                  {Algorithm::native, Bytes(1001), Bytes(2000)},
                  {Algorithm::leader, Bytes(2001), Bytes(3000)},
                  {Algorithm::split_rail, Bytes(3001), Bytes(4000)}};
  const auto wire = [](HybridCommunicator& group, std::uint64_t bytes, DataType type,
                       Reduction reduction = Reduction::sum) {
    return group.choice(Bytes(bytes), type, reduction).wire;
  };
  run_hybrid(config, [&](HybridCommunicator& group) {
    EXPECT_EQ(wire(group, 1000, DataType::f32), WireFormat::fp32);
    EXPECT_EQ(wire(group, 2000, DataType::f32), WireFormat::fp32);
    EXPECT_EQ(wire(group, 3000, DataType::f32), WireFormat::int8);
    EXPECT_EQ(wire(group, 4000, DataType::f32, Reduction::average), WireFormat::int8);
    EXPECT_EQ(wire(group, 5000, DataType::f32), WireFormat::int8);
    EXPECT_EQ(wire(group, 3000, DataType::f32, Reduction::max), WireFormat::fp32);
    EXPECT_EQ(wire(group, 3000, DataType::bf16), WireFormat::fp32);
  });
  config.clusters = clusters_of("aaaa");
  config.rules.clear();
  run_hybrid(config, [&](HybridCommunicator& group) {
    EXPECT_EQ(wire(group, 3000, DataType::f32), WireFormat::fp32);
  });
}

TEST(HybridTags, ThoseOfCollectivesAreRefused) {
  run_hybrid(config_of("ab", Algorithm::ring), [](HybridCommunicator& group) {
    std::vector<float> values(10, 1.0F);
    const std::span<float> all(values);
    const ConstBuffer input(values.data(), values.size(), DataType::f32);
    const RankId other(1 - group.rank().value());
    EXPECT_THROW(group.start_send(input, other, message_tags::first_reserved), UserError);
    EXPECT_THROW(group.start_receive(all, other, 4095), UserError);
    EXPECT_THROW(group.send(input, other, message_tags::ring), UserError);
    EXPECT_THROW(group.receive(all, other, message_tags::ring), UserError);
    const Outgoing out{input, other, message_tags::ring};
    EXPECT_THROW(group.exchange({&out, 1}, {}), UserError);
    const Incoming in{all, other, message_tags::ring};
    EXPECT_THROW(group.exchange({}, {&in, 1}), UserError);
    group.all_reduce(all);  // a flat algorithm over this group's messages
    EXPECT_THROW(group.send(input, other, message_tags::ring), UserError);
    EXPECT_EQ(values, std::vector<float>(10, 2.0F));
  });
}

TEST(HybridConfig, ImpossibleOnesAreRefused) {
  const auto make = [](const std::function<void(HybridConfig&)>& spoil) {
    HybridConfig config = config_of("aabb", Algorithm::leader);
    spoil(config);
    run_on_threads(4, {}, [&](World& world) {
      make_hybrid_communicator(std::move(world.communicator), config);
    });
  };
  EXPECT_NO_THROW(make([](HybridConfig&) {}));
  const std::vector<std::function<void(HybridConfig&)>> spoils{
      [](HybridConfig& config) { config.clusters.clusters[1].ranks = {RankId(2)}; },
      [](HybridConfig& config) {
        config.clusters.clusters[1].ranks = {RankId(1), RankId(2)};
      },
      [](HybridConfig& config) {
        config.clusters.clusters[1].ranks = {RankId(2), RankId(9)};
      },
      [](HybridConfig& config) { config.clusters.clusters[0].bridges.clear(); },
      [](HybridConfig& config) { config.window = 0; },
      [](HybridConfig& config) {
        config.clusters.clusters[0].bridges = {{RankId(3), "", 1}};
      }};
  for (const auto& spoil : spoils) EXPECT_THROW(make(spoil), Error);
}

TEST(Hybrid, HierarchyInOneClusterIsAUserError) {
  run_hybrid(config_of("aa", Algorithm::leader), [](HybridCommunicator& group) {
    std::vector<float> values(3);
    EXPECT_THROW(group.all_reduce(std::span<float>(values)), UserError);
  });
}

TEST(Hybrid, GroupsOfAGroupKeepTheirClusters) {
  run_hybrid(config_of("aAbBab", Algorithm::leader), [](HybridCommunicator& group) {
    const int self = group.rank().value();
    const auto part = group.split(self < 2 ? 0 : 1, -self);
    auto& hybrid = dynamic_cast<HybridCommunicator&>(*part);
    const auto& clusters = hybrid.clusters().clusters;
    if (self < 2) {
      ASSERT_EQ(clusters.size(), 1u);
      EXPECT_EQ(clusters[0].bridges[0].rank, RankId(0));  // rank 1 of the world
    } else {
      // Ranks 5, 4, 3, 2: b, a, B, b.
      ASSERT_EQ(clusters.size(), 2u);
      EXPECT_EQ(clusters[0].label, "b");
      EXPECT_EQ(clusters[0].ranks, (std::vector<RankId>{RankId(0), RankId(2), RankId(3)}));
      EXPECT_EQ(clusters[0].bridges[0].rank, RankId(2));
      EXPECT_EQ(clusters[1].bridges[0].rank, RankId(1));
    }
    std::vector<std::int64_t> ones(5000, 1);
    part->all_reduce(std::span<std::int64_t>(ones));
    EXPECT_EQ(ones, std::vector<std::int64_t>(5000, part->size()));
  });
}

// ---- lanes

TEST(Lanes, BridgesCarryTheirShares) {
  // Cluster a cuts at 1/3, b at nothing, c at 1/6 and 1/2.
  const auto lanes = split_rail_lanes(clusters_of("AAbCCC"));
  ASSERT_EQ(lanes.size(), 4u);
  const double cuts[] = {0, 1.0 / 6, 1.0 / 3, 0.5, 1};
  const int of_a[] = {0, 0, 1, 1}, of_c[] = {3, 4, 4, 5};
  for (std::size_t k = 0; k < lanes.size(); ++k) {
    EXPECT_NEAR(lanes[k].begin, cuts[k], 1e-12);
    EXPECT_NEAR(lanes[k].end, cuts[k + 1], 1e-12);
    EXPECT_EQ(lanes[k].tops, (std::vector<RankId>{RankId(of_a[k]), RankId(2), RankId(of_c[k])}));
  }
  EXPECT_EQ(split_rail_lanes(clusters_of("AABB")).size(), 2u);
  EXPECT_EQ(leader_lanes(clusters_of("AABB")).size(), 1u);
}

TEST(Lanes, SegmentsCoverEverythingOnceAndProgressTogether) {
  const auto lanes = split_rail_lanes(clusters_of("AAbCCC"));
  for (std::size_t count : {0, 1, 2, 5, 100, 4096, 100003}) {
    std::vector<VectorSegment> parts;
    std::vector<VectorSegment> segments;
    add_lanes(lanes, {0, count, 0, 0}, parts);
    cut_segments(parts, 256, segments);
    std::vector<int> covered(count, 0);
    for (const VectorSegment& one : segments) {
      EXPECT_GT(one.count, 0u);
      EXPECT_LE(one.count, 256u);
      EXPECT_EQ(one.begin, one.result_begin);
      for (std::size_t i = one.begin; i < one.begin + one.count; ++i) ++covered[i];
    }
    EXPECT_EQ(covered, std::vector<int>(count, 1)) << count;
  }
  std::vector<VectorSegment> segments;
  cut_segments({{0, 400, 0, 0}, {400, 200, 400, 1}}, 100, segments);
  std::string order;
  for (const VectorSegment& one : segments) order += static_cast<char>('0' + one.role);
  EXPECT_EQ(order, "010010");
}

}  // namespace
}  // namespace heteroperf
