#include "runners/cluster/rank_clusters.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <string>

#include "metrics/base/error.hpp"

namespace heteroperf {
namespace {

/// Returns the cluster of a label, which is made if it is new.
RankCluster& with_label(std::vector<RankCluster>& clusters, const std::string& label) {
  const auto known =
      std::find_if(clusters.begin(), clusters.end(),
                   [&](const RankCluster& cluster) { return cluster.label == label; });
  if (known != clusters.end()) return *known;
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
  return std::accumulate(clusters.begin(), clusters.end(), 0,
                         [](int sum, const RankCluster& cluster) {
                           return sum + static_cast<int>(cluster.ranks.size());
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
    with_label(result.clusters, labels[rank]).ranks.push_back(RankId(rank));
  }
  for (RankCluster& cluster : result.clusters) cluster.bridges = {{cluster.ranks.front(), "", 1.0}};
  return result;
}

RankClusters one_cluster(int ranks) {
  HETEROPERF_EXPECT(ranks > 0);
  RankClusters result = clusters_by_label(std::vector<std::string>(ranks), ranks);
  result.reason = "one cluster";
  return result;
}

namespace {

constexpr std::size_t out_of_reach = std::numeric_limits<std::size_t>::max();

/// Returns the place of a card among those of a rank; 0 is the nearest.
std::size_t distance(const BridgeCandidate& rank, const std::string& card) {
  for (std::size_t i = 0; i < rank.cards.size(); ++i) {
    if (rank.cards[i].name == card) return i;
  }
  return out_of_reach;
}

/// Lists every card once, the fastest first. A bandwidth that one rank knows holds for all.
std::vector<NetworkCard> distinct_cards(const std::vector<BridgeCandidate>& ranks) {
  std::map<std::string, BytesPerSecond> by_name;
  for (const BridgeCandidate& rank : ranks) {
    for (const NetworkCard& card : rank.cards) {
      BytesPerSecond& known = by_name[card.name];
      known = std::max(known, card.bandwidth);
    }
  }
  std::vector<NetworkCard> cards;
  for (const auto& [name, bandwidth] : by_name) cards.push_back({name, bandwidth});
  std::stable_sort(cards.begin(), cards.end(), [](const NetworkCard& a, const NetworkCard& b) {
    return a.bandwidth > b.bandwidth;
  });
  return cards;
}

/// Returns the nearest rank that is no bridge yet; null when none reaches the card.
const BridgeCandidate* nearest_free(const std::vector<BridgeCandidate>& ranks,
                                    const std::string& card, const std::set<RankId>& taken) {
  const BridgeCandidate* nearest = nullptr;
  std::size_t least = out_of_reach;
  for (const BridgeCandidate& rank : ranks) {
    const std::size_t here = distance(rank, card);
    if (here >= least || taken.count(rank.rank) != 0) continue;
    least = here;
    nearest = &rank;
  }
  return nearest;
}

/// A bridge with the bandwidth of its card.
struct Chosen {
  Bridge bridge;
  BytesPerSecond bandwidth;
};

/// Gives every bridge its part of the cluster's traffic.
void set_shares(std::vector<Chosen>& chosen) {
  double total = 0;
  bool all_known = true;
  for (const Chosen& choice : chosen) {
    total += choice.bandwidth.value();
    all_known &= choice.bandwidth > BytesPerSecond(0);
  }
  const auto count = static_cast<double>(chosen.size());
  for (Chosen& choice : chosen) {
    choice.bridge.share = all_known ? choice.bandwidth.value() / total : 1 / count;
  }
}

}  // namespace

std::vector<Bridge> choose_bridges(const std::vector<BridgeCandidate>& ranks, int most) {
  HETEROPERF_EXPECT(!ranks.empty() && most >= 1);
  std::vector<Chosen> chosen;
  std::set<RankId> taken;
  for (const NetworkCard& card : distinct_cards(ranks)) {
    if (std::ssize(chosen) == most) break;
    const BridgeCandidate* nearest = nearest_free(ranks, card.name, taken);
    if (nearest == nullptr) continue;
    taken.insert(nearest->rank);
    chosen.push_back({{nearest->rank, card.name, 1.0}, card.bandwidth});
  }
  if (chosen.empty()) return {{ranks.front().rank, "", 1.0}};
  set_shares(chosen);
  std::sort(chosen.begin(), chosen.end(),
            [](const Chosen& a, const Chosen& b) { return a.bridge.rank < b.bridge.rank; });
  std::vector<Bridge> bridges;
  for (const Chosen& choice : chosen) bridges.push_back(choice.bridge);
  return bridges;
}

}  // namespace heteroperf
