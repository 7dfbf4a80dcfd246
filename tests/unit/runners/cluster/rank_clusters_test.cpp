#include "runners/cluster/rank_clusters.hpp"

#include <gtest/gtest.h>

#include "metrics/base/error.hpp"

namespace heteroperf {
namespace {

std::vector<RankId> ids(std::initializer_list<int> ranks) {
  std::vector<RankId> result;
  for (int rank : ranks) result.emplace_back(rank);
  return result;
}

TEST(ClustersByLabel, EqualLabelsAreOneClusterWhereverTheyStand) {
  const RankClusters found = clusters_by_label({"b", "a", "b", "c", "a"}, 5);
  ASSERT_EQ(found.clusters.size(), 3u);
  EXPECT_EQ(found.clusters[0].label, "b");
  EXPECT_EQ(found.clusters[0].ranks, ids({0, 2}));
  EXPECT_EQ(found.clusters[1].ranks, ids({1, 4}));
  EXPECT_EQ(found.clusters[2].ranks, ids({3}));
  EXPECT_EQ(found.clusters[1].bridges, (std::vector<Bridge>{{RankId(1), "", 1.0}}));
  EXPECT_EQ(found.reason, "labels given");
  EXPECT_EQ(found.ranks(), 5);
  const std::size_t expected[] = {0, 1, 0, 2, 1};
  for (int rank = 0; rank < 5; ++rank) {
    EXPECT_EQ(found.cluster_of(RankId(rank)), expected[static_cast<std::size_t>(rank)]);
  }
  EXPECT_THROW(found.cluster_of(RankId(5)), Error);
}

TEST(ClustersByLabel, NeedsOneLabelForEachRank) {
  for (int ranks : {0, 2, 4}) {
    try {
      clusters_by_label({"a", "a", "b"}, ranks);
      ADD_FAILURE() << ranks << " ranks were taken";
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find("3 cluster labels"), std::string::npos)
          << error.what();
    }
  }
  EXPECT_THROW(clusters_by_label({}, 0), UserError);
}

TEST(ClustersByLabel, EqualLabelsAreOneCluster) {
  const RankClusters found = clusters_by_label({"", "", ""}, 3);
  ASSERT_EQ(found.clusters.size(), 1u);
  EXPECT_EQ(found.clusters[0].ranks, ids({0, 1, 2}));
  EXPECT_EQ(found.clusters[0].bridges.size(), 1u);
  EXPECT_EQ(found.ranks(), 3);
  EXPECT_FALSE(found.reason.empty());
}

}  // namespace
}  // namespace heteroperf
