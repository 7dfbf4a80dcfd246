#pragma once

#include <string>
#include <vector>

#include "metrics/base/quantity.hpp"

namespace heteroperf {

/// A rank that carries its cluster's traffic to other clusters, over one network card.
struct Bridge {
  RankId rank;
  std::string card;  ///< "" when it is not known
  /// Its part of the cluster's traffic, by the card's bandwidth; a cluster's shares sum to 1.
  double share = 1.0;
  friend bool operator==(const Bridge&, const Bridge&) = default;
};

/// Like ranks with fast links among them.
struct RankCluster {
  std::string label;
  std::vector<RankId> ranks;    ///< ascending; not necessarily contiguous
  std::vector<Bridge> bridges;  ///< at least one, one per distinct card
  friend bool operator==(const RankCluster&, const RankCluster&) = default;
};

/// The clusters of a group: every rank is in exactly one. Ordered by their first rank.
struct RankClusters {
  std::vector<RankCluster> clusters;
  std::string reason;  ///< why these: "labels given", "one host", "bandwidth gap 9.6x", …

  /// Index into `clusters`.
  std::size_t cluster_of(RankId rank) const;
  int ranks() const;
  friend bool operator==(const RankClusters&, const RankClusters&) = default;
};

/// One label per rank, equal labels make a cluster; the first rank of each is its bridge. Throws
/// UserError when there is not one label for each of `ranks`.
RankClusters clusters_by_label(const std::vector<std::string>& labels, int ranks);
/// All ranks in one cluster.
RankClusters one_cluster(int ranks);

}  // namespace heteroperf
