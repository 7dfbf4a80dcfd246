#include "runners/comm/discovery/link_probe.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "metrics/base/random.hpp"
#include "runners/comm/paced/paced_communicator.hpp"
#include "runners/comm/world.hpp"

namespace heteroperf {
namespace {

/// Of a token bucket: (n - burst) / rate + latency, at the speed of the wire below the burst.
LinkCurve shaped(double rate, double burst) {
  constexpr double latency_s = 1e-5, wire = 2e9;
  std::vector<LinkCurve::Point> points;
  for (std::uint64_t bytes = 64; bytes <= 16 << 20; bytes *= 4) {
    const auto n = static_cast<double>(bytes);
    points.push_back({Bytes(bytes), Seconds(latency_s + std::max(n / wire, (n - burst) / rate))});
  }
  return LinkCurve(std::move(points));
}

TEST(BurstOf, IsWhatAShaperLetsPass) {
  for (const double burst : {32768.0, 131072.0, 200000.0, 1000000.0}) {
    const Bytes found = burst_of(shaped(1e8, burst), BytesPerSecond(1e8));
    // Messages below it tell that there is one; the next one how large it is.
    EXPECT_NEAR(static_cast<double>(found.value()), burst, 0.1 * burst);
  }
}

TEST(BurstOf, IsNothingWithoutAShaper) {
  EXPECT_EQ(burst_of(shaped(1e8, 0), BytesPerSecond(1e8)), Bytes(0));
  EXPECT_EQ(burst_of({Seconds(1e-5), BytesPerSecond(1e8)}, BytesPerSecond(1e8)), Bytes(0));
  // All messages are fast: what was taken for the rate is too small.
  EXPECT_EQ(burst_of(shaped(1e8, 0), BytesPerSecond(1e6)), Bytes(0));
}

/// Noise only adds time.
TEST(BurstOf, NoiseDoesNotMakeItLarger) {
  RandomStream random(3);
  for (int round = 0; round < 500; ++round) {
    std::vector<LinkCurve::Point> points = shaped(1e8, 131072).points();
    for (std::size_t i = 1; i < points.size(); ++i) {
      const double factor = 1 + static_cast<double>(random.below(100)) / 100;
      points[i].time = std::max(points[i - 1].time, points[i].time * factor);
    }
    const Bytes found = burst_of(LinkCurve(points), BytesPerSecond(1e8));
    EXPECT_GE(found, Bytes(50000));
    EXPECT_LE(found, Bytes(131100));
  }
}

TEST(HostRate, IsThatPastTheBurst) {
  const LinkCurve link = shaped(1e8, 131072);
  const Bytes size(std::uint64_t{4} << 20);
  // There and the answer back.
  const HostRate rate = host_rate(link, size, link.time(size) + link.latency());
  EXPECT_NEAR(rate.alone.value(), 1e8, 1e6);
  EXPECT_EQ(rate.together, rate.alone);
  EXPECT_NEAR(static_cast<double>(rate.burst.value()), 131072, 5000);
  EXPECT_GT(host_rate(link, size, Seconds(1e-9)).alone.value(), 0);
}

/// Hosts of two ranks each, with these cards.
Cluster two_hosts(std::vector<NetworkCard> cards, const std::vector<std::string>& of_left) {
  Cluster cluster;
  cluster.name = "hosts";
  DeviceClass cpu;
  cpu.name = "cpu";
  cluster.classes = {cpu};
  cluster.cards = std::move(cards);
  for (const char* host : {"left", "left", "right", "right"}) {
    cluster.ranks.push_back({"cpu", host, host, {}});
    if (host == std::string("left")) cluster.ranks.back().cards = of_left;
  }
  const LinkCurve inside(Seconds(1e-6), BytesPerSecond(5e9));
  cluster.links = {{"left", "left", {}, inside, "given"},
                   {"right", "right", {}, inside, "given"},
                   {"left", "right", {}, {Seconds(1e-5), BytesPerSecond(1e7)}, "given"}};
  return cluster;
}

TEST(NoteHostRate, ASharedCardGetsItsBandwidth) {
  Cluster cluster = two_hosts({{"left/eth0"}, {"other"}}, {"left/eth0"});
  note_host_rate(cluster, "left", {BytesPerSecond(1e8), BytesPerSecond(1.1e8), Bytes(0)});
  EXPECT_EQ(cluster.cards[0], (NetworkCard{"left/eth0", BytesPerSecond(1.1e8)}));
  EXPECT_EQ(cluster.cards[1], (NetworkCard{"other"}));
}

TEST(NoteHostRate, SeveralCardsShareIt) {
  Cluster cluster = two_hosts({{"left/eth0"}, {"left/eth1"}}, {"left/eth0", "left/eth1"});
  note_host_rate(cluster, "left", {BytesPerSecond(1e8), BytesPerSecond(1.2e8), Bytes(1000)});
  for (const NetworkCard& card : cluster.cards) {
    EXPECT_EQ(card.bandwidth, BytesPerSecond(0.6e8));
    EXPECT_EQ(card.burst, Bytes(500));
  }
}

TEST(NoteHostRate, RanksWithoutACardGetOne) {
  Cluster cluster = two_hosts({}, {});
  note_host_rate(cluster, "right", {BytesPerSecond(1e8), BytesPerSecond(1e8), Bytes(0)});
  ASSERT_EQ(cluster.cards.size(), 1u);
  EXPECT_EQ(cluster.cards[0], (NetworkCard{"right/network", BytesPerSecond(1e8)}));
  EXPECT_TRUE(cluster.ranks[0].cards.empty());
  EXPECT_EQ(cluster.ranks[3].cards, std::vector<std::string>{"right/network"});
  check_cluster(cluster);
}

TEST(NoteHostRate, WhatDoesNotLimitIsLeftAlone) {
  const Cluster before = two_hosts({{"left/eth0", BytesPerSecond(1.25e8)}}, {"left/eth0"});
  Cluster cluster = before;
  note_host_rate(cluster, "left", {BytesPerSecond(1e8), BytesPerSecond(1.9e8), Bytes(0)});
  note_host_rate(cluster, "right", {BytesPerSecond(1e8), BytesPerSecond(1.6e8), Bytes(0)});
  EXPECT_EQ(cluster.cards, before.cards);
  EXPECT_EQ(cluster.ranks, before.ranks);
}

/// Measured through a model of shared cards with a burst, which nothing passes faster than.
TEST(MeasureCards, FindsTheCardsOfAModel) {
  const BytesPerSecond rate(1e7);
  Cluster modelled = two_hosts({{"l", rate, Bytes(131072)}, {"r", rate, Bytes(131072)}}, {"l"});
  modelled.ranks[2].cards = modelled.ranks[3].cards = {"r"};
  Cluster unknown = modelled;
  for (NetworkCard& card : unknown.cards) card = NetworkCard{card.name};
  std::vector<Cluster> found(4);
  std::vector<int> asked(4);
  run_on_threads(4, {}, [&](World& world) {
    const auto rank = world.communicator->rank().index();
    const auto paced = make_paced_communicator(std::move(world.communicator), modelled);
    found[rank] = unknown;
    measure_cards(*paced, found[rank], [&] { ++asked[rank]; });
  });
  for (std::size_t r = 0; r < 4; ++r) {
    EXPECT_EQ(found[r].cards, found[0].cards);
    EXPECT_EQ(asked[r], 2);
  }
  for (const NetworkCard& card : found[0].cards) {
    EXPECT_GT(card.bandwidth.value(), 0);
    // What is not seen of the burst, and ranks that do not start at the same moment.
    EXPECT_LT(card.bandwidth.value(), 1.2 * rate.value());
  }
}

TEST(MeasureCards, OneHostHasNoneToMeasure) {
  Cluster cluster = two_hosts({}, {});
  for (RankPlace& place : cluster.ranks) place.host = "left";
  const Cluster before = cluster;
  run_on_threads(4, {}, [&](World& world) {
    Cluster local = before;
    measure_cards(*world.communicator, local, [] { ADD_FAILURE() << "measured"; });
    EXPECT_EQ(local.cards, before.cards);
  });
}

}  // namespace
}  // namespace heteroperf
