#include "runners/cluster/rank_clusters.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <string>

#include "metrics/base/error.hpp"

namespace heteroperf {
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
  std::map<std::string, std::size_t> index;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto [entry, is_new] = index.emplace(labels[rank], result.clusters.size());
    if (is_new) result.clusters.push_back({labels[rank], {}, {}});
    result.clusters[entry->second].ranks.push_back(RankId(rank));
  }
  for (RankCluster& cluster : result.clusters) cluster.bridges = {{cluster.ranks.front(), "", 1.0}};
  return result;
}

namespace {

constexpr std::size_t out_of_reach = std::numeric_limits<std::size_t>::max();

/// Returns the place of a card among those of a rank; 0 is the nearest.
std::size_t distance(const BridgeCandidate& rank, const std::string& card) {
  const auto place = std::ranges::find(rank.cards, card, &NetworkCard::name);
  return place == rank.cards.end() ? out_of_reach : place - rank.cards.begin();
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
  std::ranges::stable_sort(cards, std::greater(), &NetworkCard::bandwidth);
  return cards;
}

/// Returns the nearest rank that is no bridge yet; null when none reaches the card.
const BridgeCandidate* nearest_free(const std::vector<BridgeCandidate>& ranks,
                                    const std::string& card, const std::set<RankId>& taken) {
  const auto reach = [&](const BridgeCandidate& rank) {
    return taken.contains(rank.rank) ? out_of_reach : distance(rank, card);
  };
  const auto nearest = std::ranges::min_element(ranks, {}, reach);
  return reach(*nearest) == out_of_reach ? nullptr : &*nearest;
}

/// Turns the bandwidths of the bridges' cards into their parts of the cluster's traffic.
void set_shares(std::vector<Bridge>& bridges) {
  double total = 0;
  bool all_known = true;
  for (const Bridge& bridge : bridges) {
    total += bridge.share;
    all_known &= bridge.share > 0;
  }
  const auto count = static_cast<double>(bridges.size());
  for (Bridge& bridge : bridges) bridge.share = all_known ? bridge.share / total : 1 / count;
}

}  // namespace

std::vector<Bridge> choose_bridges(const std::vector<BridgeCandidate>& ranks, int most) {
  HETEROPERF_EXPECT(!ranks.empty() && most >= 1);
  std::vector<Bridge> bridges;
  std::set<RankId> taken;
  for (const NetworkCard& card : distinct_cards(ranks)) {
    if (std::ssize(bridges) == most) break;
    const BridgeCandidate* nearest = nearest_free(ranks, card.name, taken);
    if (nearest == nullptr) continue;
    taken.insert(nearest->rank);
    bridges.push_back({nearest->rank, card.name, card.bandwidth.value()});
  }
  if (bridges.empty()) return {{ranks.front().rank, "", 1.0}};
  set_shares(bridges);
  std::ranges::sort(bridges, {}, &Bridge::rank);
  return bridges;
}

}  // namespace heteroperf
