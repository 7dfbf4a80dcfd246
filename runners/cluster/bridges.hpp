#pragma once

#include <vector>

#include "runners/cluster/cluster.hpp"

namespace heteroperf {

/// A rank of one cluster and the cards it can use, nearest first.
struct BridgeCandidate {
  RankId rank;
  std::vector<NetworkCard> cards;
};

/// One bridge per distinct card: the rank it is nearest to, of equals one that is no bridge yet,
/// then the lowest. A rank is bridge of one card, so there are never more bridges than ranks, nor
/// than `most` >= 1; faster cards come first. Ascending by rank. Shares are as the cards'
/// bandwidths, equal where one is unknown. Without any card the first rank is the bridge.
/// `ranks` is not empty and ascending.
std::vector<Bridge> choose_bridges(const std::vector<BridgeCandidate>& ranks, int most);

/// Default of `most`: a few flows fill a link, more only share it.
constexpr int most_bridges = 8;

}  // namespace heteroperf
