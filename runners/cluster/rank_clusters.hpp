#pragma once

#include <string>
#include <vector>

#include "metrics/base/id.hpp"
#include "metrics/base/quantity.hpp"
#include "runners/cluster/link_curve.hpp"

namespace heteroperf {

/// A network card; ranks that name the same card share its bandwidth.
struct NetworkCard {
  std::string name;
  BytesPerSecond bandwidth{0};  ///< 0 where it is unknown, which limits nothing
  Bytes burst{0};               ///< bytes that pass unlimited after a pause, as with shapers
  friend bool operator==(const NetworkCard&, const NetworkCard&) = default;
};

/// A rank that carries its cluster's traffic to other clusters, over one network card.
struct Bridge {
  RankId rank;
  std::string card;  ///< empty when it is not known
  /// The part of the cluster's traffic that it carries; the shares of a cluster sum to 1.
  double share = 1.0;
  friend bool operator==(const Bridge&, const Bridge&) = default;
};

/// Like ranks with fast links among them.
struct RankCluster {
  std::string label;
  std::vector<RankId> ranks;    ///< ascending, not necessarily contiguous
  std::vector<Bridge> bridges;  ///< at least one, one per distinct card
  friend bool operator==(const RankCluster&, const RankCluster&) = default;
};

/// The clusters of a group, ordered by their first rank. Every rank is in exactly one of them.
struct RankClusters {
  std::vector<RankCluster> clusters;
  std::string reason;  ///< the reason for this grouping: "labels given", "one host", "bandwidth
                       ///< gap 9.6x", …

  /// Returns the index into `clusters` of the one that holds the rank.
  std::size_t cluster_of(RankId rank) const;
  int ranks() const;
  friend bool operator==(const RankClusters&, const RankClusters&) = default;
};

/// Makes a cluster of all ranks with equal labels; the first rank of each is its bridge. Throws
/// UserError when there is not one label for each of `ranks`.
RankClusters clusters_by_label(const std::vector<std::string>& labels, int ranks);

/// A rank of one cluster, and the cards it can use, nearest first.
struct BridgeCandidate {
  RankId rank;
  std::vector<NetworkCard> cards;
};

/// Chooses the bridges of a cluster, one per distinct card: the rank to which the card is nearest;
/// among equals one that is no bridge yet, then the lowest. A rank is bridge of one card, so there
/// are never more bridges than ranks, nor more than `most` >= 1; faster cards come first.
///
/// The result ascends by rank. Shares follow the cards' bandwidths, and are equal where one of
/// these is unknown. Without any card the first rank is the bridge. `ranks` is not empty and
/// ascending.
std::vector<Bridge> choose_bridges(const std::vector<BridgeCandidate>& ranks, int most);

/// The usual `most`: a few flows fill a link, and further ones only share it.
constexpr int most_bridges = 8;

}  // namespace heteroperf
