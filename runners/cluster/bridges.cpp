#include "runners/cluster/bridges.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <string>

#include "metrics/base/error.hpp"

namespace heteroperf {
namespace {

constexpr std::size_t out_of_reach = std::numeric_limits<std::size_t>::max();

/// 0 for the nearest card of a rank.
std::size_t distance(const BridgeCandidate& rank, const std::string& card) {
  for (std::size_t i = 0; i < rank.cards.size(); ++i) {
    if (rank.cards[i].name == card) return i;
  }
  return out_of_reach;
}

/// Every card once, the fastest first. A bandwidth that one rank knows holds for all.
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

/// The nearest rank that is no bridge yet; null when none reaches the card.
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

struct Chosen {
  Bridge bridge;
  BytesPerSecond bandwidth;
};

void set_shares(std::vector<Chosen>& chosen) {
  double total = 0;
  bool all_known = true;
  for (const Chosen& one : chosen) {
    total += one.bandwidth.value();
    all_known &= one.bandwidth > BytesPerSecond(0);
  }
  const auto count = static_cast<double>(chosen.size());
  for (Chosen& one : chosen) {
    one.bridge.share = all_known ? one.bandwidth.value() / total : 1 / count;
  }
}

}  // namespace

std::vector<Bridge> choose_bridges(const std::vector<BridgeCandidate>& ranks, int most) {
  HETEROPERF_EXPECT(!ranks.empty() && most >= 1);
  std::vector<Chosen> chosen;
  std::set<RankId> taken;
  for (const NetworkCard& card : distinct_cards(ranks)) {
    if (chosen.size() == static_cast<std::size_t>(most)) break;
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
  for (const Chosen& one : chosen) bridges.push_back(one.bridge);
  return bridges;
}

}  // namespace heteroperf
