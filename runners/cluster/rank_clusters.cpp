#include "runners/cluster/rank_clusters.hpp"

#include <algorithm>
#include <numeric>

#include "metrics/base/error.hpp"

namespace heteroperf {
namespace {

RankCluster& with_label(std::vector<RankCluster>& clusters, const std::string& label) {
  const auto found = std::find_if(clusters.begin(), clusters.end(),
                                  [&](const RankCluster& one) { return one.label == label; });
  if (found != clusters.end()) return *found;
  clusters.push_back({label, {}, {}});
  return clusters.back();
}

}  // namespace

std::size_t RankClusters::cluster_of(RankId rank) const {
  for (std::size_t c = 0; c < clusters.size(); ++c) {
    if (std::binary_search(clusters[c].ranks.begin(), clusters[c].ranks.end(), rank)) return c;
  }
  HETEROPERF_EXPECT(!"the rank is in a cluster");
  return clusters.size();
}

int RankClusters::ranks() const {
  return std::accumulate(clusters.begin(), clusters.end(), 0, [](int sum, const RankCluster& one) {
    return sum + static_cast<int>(one.ranks.size());
  });
}

RankClusters clusters_by_label(const std::vector<std::string>& labels, int ranks) {
  if (ranks < 1 || labels.size() != static_cast<std::size_t>(ranks)) {
    throw UserError(
        std::to_string(labels.size()) + " cluster labels for " + std::to_string(ranks) + " ranks",
        "every rank needs one label", "Give one label per rank, in rank order, as in a,a,b,b");
  }
  RankClusters result{{}, "labels given"};
  for (int rank = 0; rank < ranks; ++rank) {
    with_label(result.clusters, labels[static_cast<std::size_t>(rank)])
        .ranks.push_back(RankId(rank));
  }
  for (RankCluster& one : result.clusters) one.bridges = {{one.ranks.front(), "", 1.0}};
  return result;
}

RankClusters one_cluster(int ranks) {
  HETEROPERF_EXPECT(ranks > 0);
  RankClusters result =
      clusters_by_label(std::vector<std::string>(static_cast<std::size_t>(ranks)), ranks);
  result.reason = "one cluster";
  return result;
}

}  // namespace heteroperf
