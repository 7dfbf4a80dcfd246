#include "runners/cluster/cluster.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "metrics/base/error.hpp"
#include "runners/cluster/rank_clusters.hpp"
#include "tests/unit/runners/cluster/small_cluster.hpp"

namespace heteroperf {
namespace {

using test::complaint;
using test::small_cluster;

std::string problems_of(const Cluster& cluster) {
  return complaint<UserError>([&] { check_cluster(cluster); });
}

bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Cluster, LinksAreTheSameInBothDirectionsAndPairsComeFirst) {
  Cluster cluster = small_cluster({"a", "b", "a", "b"});
  const LinkCurve own{Seconds(1), BytesPerSecond(1)};
  cluster.links.push_back({"", "", std::pair(RankId(1), RankId(2)), own, ""});
  check_cluster(cluster);
  EXPECT_EQ(cluster.link(RankId(1), RankId(2)), own);
  EXPECT_EQ(cluster.link(RankId(2), RankId(1)), own);
  EXPECT_EQ(cluster.link(RankId(0), RankId(2)).latency(), Seconds(1e-6));
  EXPECT_EQ(cluster.link(RankId(0), RankId(1)).latency(), Seconds(5e-5));
  EXPECT_EQ(&cluster.link(RankId(3), RankId(0)), &cluster.link(RankId(0), RankId(3)));
}

TEST(Cluster, AcceptsOneRankWithoutAnyLink) {
  Cluster cluster = small_cluster({"a"});
  cluster.links.clear();
  EXPECT_EQ(problems_of(cluster), "");
}

TEST(Cluster, NamesThePairWithoutALink) {
  Cluster cluster = small_cluster({"a", "b", "a"});
  std::erase_if(cluster.links, [](const Link& link) { return link.from != link.to; });
  EXPECT_TRUE(says(problems_of(cluster), "no link between ranks 0 and 1")) << problems_of(cluster);
  const LinkCurve curve{Seconds(0), BytesPerSecond(1)};
  cluster.links.push_back({"", "", std::pair(RankId(0), RankId(1)), curve, ""});
  EXPECT_TRUE(says(problems_of(cluster), "no link between ranks 2 and 1")) << problems_of(cluster);
  cluster.links.push_back({"", "", std::pair(RankId(1), RankId(2)), curve, ""});
  EXPECT_EQ(problems_of(cluster), "");
}

TEST(Cluster, RefusesAsymmetricAndRepeatedLinks) {
  Cluster cluster = small_cluster({"a", "b"});
  cluster.links.push_back({"b", "a", {}, LinkCurve(Seconds(1), BytesPerSecond(3)), ""});
  const std::string text = problems_of(cluster);
  EXPECT_TRUE(says(text, "asymmetric link") && says(text, "5e-05 s") && says(text, "1 s + 3 B/s"))
      << text;
  cluster.links.back() = cluster.links[1];
  EXPECT_TRUE(says(problems_of(cluster), "twice"));
}

TEST(Cluster, ReportsEverythingAtOnce) {
  Cluster cluster = small_cluster({"rack", "rack"});
  cluster.classes.push_back(cluster.classes.front());
  cluster.cards = {{"eth0", BytesPerSecond(-1)}, {"eth0", BytesPerSecond(1)}, {""}};
  cluster.ranks[0].device_class = "cpo";
  cluster.ranks[1].cards = {"eth1"};
  cluster.ranks.push_back({"cpu", "", "", {}});
  const LinkCurve curve{Seconds(0), BytesPerSecond(1)};
  cluster.links.push_back({"rak", "rack", {}, curve, ""});
  cluster.links.push_back({"", "", std::pair(RankId(2), RankId(9)), curve, ""});
  cluster.links.push_back({"rack", "rack", std::pair(RankId(0), RankId(1)), curve, ""});
  cluster.links.push_back({"", "", {}, curve, ""});
  cluster.links.push_back({"", "", std::pair(RankId(0), RankId(1)), {}, ""});
  cluster.efficiency.push_back({"gpu", "gemm", "8x8x8", "fp32", OpsPerSecond(0), ""});
  const std::string text = problems_of(cluster);
  for (const char* part :
       {"device class \"cpu\" is there twice", "card \"eth0\" is there twice", "card has no name",
        "bandwidth of card \"eth0\" is -1", "device class \"cpo\"", "Did you mean \"cpu\"?",
        "card \"eth1\"", "Did you mean \"eth0\"?", "rank 2 names no cluster", "\"rak\"",
        "Did you mean \"rack\"?", "ranks 2 and 9", "and ranks", "names neither", "neither latency",
        "names the device class \"gpu\"", "is 0 operations per second"}) {
    EXPECT_TRUE(says(text, part)) << part << " in\n" << text;
  }
  EXPECT_TRUE(says(problems_of(Cluster{}), "no ranks"));
}

TEST(Cluster, RankClustersFollowTheLabelsInOrderOfFirstRank) {
  const RankClusters found = small_cluster({"z", "a", "z", "m", "a"}).rank_clusters();
  ASSERT_EQ(found.clusters.size(), 3u);
  EXPECT_EQ(found.clusters[0].label, "z");
  EXPECT_EQ(found.clusters[1].ranks, (std::vector{RankId(1), RankId(4)}));
  EXPECT_EQ(found.clusters[2].bridges, (std::vector{Bridge{RankId(3), "", 1.0}}));
  EXPECT_FALSE(found.reason.empty());
}

TEST(Bridges, AreTheNearestRankOfEveryCardWithItsShare) {
  const NetworkCard fast{"ib0", BytesPerSecond(3)}, slow{"ib1", BytesPerSecond(1)};
  const auto bridges = choose_bridges(
      {{RankId(2), {slow, fast}}, {RankId(5), {slow, fast}}, {RankId(6), {fast, slow}}}, 8);
  EXPECT_EQ(bridges, (std::vector{Bridge{RankId(2), "ib1", 0.25}, Bridge{RankId(6), "ib0", 0.75}}));
}

TEST(Bridges, AreSpreadOverRanksAndCapped) {
  const std::vector<NetworkCard> cards = {{"a"}, {"b"}, {"c"}};
  const std::vector<BridgeCandidate> ranks = {{RankId(0), cards}, {RankId(1), cards}};
  EXPECT_EQ(choose_bridges(ranks, 8),
            (std::vector{Bridge{RankId(0), "a", 0.5}, Bridge{RankId(1), "b", 0.5}}));
  EXPECT_EQ(choose_bridges(ranks, 1), (std::vector{Bridge{RankId(0), "a", 1.0}}));
  const std::vector<NetworkCard> partly = {{"a", BytesPerSecond(1)}, {"b"}};
  const auto equal = choose_bridges({{RankId(0), partly}, {RankId(1), partly}}, 8);
  EXPECT_EQ(equal[0].share, 0.5);
  EXPECT_EQ(equal[1].share, 0.5);
}

TEST(Bridges, AreDistinctRanksWhoseSharesSumToOne) {
  std::mt19937 random(3);
  for (int i = 0; i < 300; ++i) {
    std::vector<BridgeCandidate> ranks;
    std::size_t cards = 0;
    for (int r = 0; r < 1 + static_cast<int>(random() % 6); ++r) {
      ranks.push_back({RankId(r), {}});
      for (int c = 0; c < 5; ++c) {
        if (random() % 2 == 0) continue;
        ranks.back().cards.push_back({std::string(1, static_cast<char>('a' + c)),
                                      BytesPerSecond(1 + static_cast<double>(c))});
        ++cards;
      }
      std::shuffle(ranks.back().cards.begin(), ranks.back().cards.end(), random);
    }
    const int most = 1 + static_cast<int>(random() % 4);
    const auto bridges = choose_bridges(ranks, most);
    double sum = 0;
    for (std::size_t b = 0; b < bridges.size(); ++b) {
      sum += bridges[b].share;
      if (b > 0) {
        EXPECT_LT(bridges[b - 1].rank, bridges[b].rank);
      }
      EXPECT_EQ(bridges[b].card.empty(), cards == 0);
    }
    EXPECT_NEAR(sum, 1, 1e-12);
    EXPECT_GE(bridges.size(), 1u);
    EXPECT_LE(bridges.size(), static_cast<std::size_t>(most));
  }
}

}  // namespace
}  // namespace heteroperf
