// Choosing who sends what.
//
// Every choice goes by *load*: the bytes that a rank has been given to send or to receive so far,
// and for bytes between clusters the load of its network card, divided by the card's share of the
// cluster's bandwidth. The least loaded candidate gets the next box, the heaviest boxes are given
// first. That is the greedy rule of scheduling by longest processing time.
//
// Sums: the summands of a box first meet inside each cluster, then the clusters' sums meet at one
// rank, chosen so that as little as possible crosses between clusters. Deliveries: each cluster
// that lacks a box gets it once. Where several ranks of a cluster want it, each of them gets some
// slices from outside and passes them on inside (a scatter followed by an all-gather), so that all
// cards of the cluster work.
#include "runners/comm/reshard/freight.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "metrics/base/error.hpp"

namespace heteroperf {
namespace {

/// The bridge whose card a rank uses: its own, else the last one before it, else the first.
const Bridge* bridge_of(const RankCluster& cluster, RankId rank) {
  const Bridge* best = cluster.bridges.empty() ? nullptr : &cluster.bridges.front();
  for (const Bridge& bridge : cluster.bridges)
    if (bridge.rank <= rank && (best->rank > rank || bridge.rank >= best->rank)) best = &bridge;
  return best;
}

double share_of(const RankCluster& cluster, const std::string& card) {
  for (const Bridge& bridge : cluster.bridges)
    if (bridge.card == card && bridge.share > 0) return bridge.share;
  return 1.0;
}

/// Returns ⌊extent·i/parts⌋ without overflow.
std::int64_t share(std::int64_t extent, std::int64_t i, std::int64_t parts) {
  return extent / parts * i + extent % parts * i / parts;
}

}  // namespace

FreightList::FreightList(const ReshardConfig& config, std::span<const Layout* const> layouts)
    : element_bytes_(static_cast<double>(size_of(config.type))) {
  std::set<RankId> used;
  for (const Layout* layout : layouts)
    for (const RankId rank : layout->ranks()) used.insert(rank);
  std::vector<RankCluster> clusters = config.clusters.clusters;
  if (clusters.empty()) clusters.push_back({"", {used.begin(), used.end()}, {}});
  std::vector<std::string> cards;
  for (std::size_t i = 0; i < clusters.size(); ++i) place(clusters[i], i, cards);

  ProblemList problems;
  for (const RankId rank : used)
    if (rank.index() >= places_.size() || cluster(rank) == nowhere)
      problems.add(fmt::format("rank {} is in no cluster", rank.value()), "a layout names it");
  problems.throw_if_any();
  for (Load* load : {&sent_, &received_}) {
    load->by_card.assign(cards.size(), 0);
    load->by_rank.assign(places_.size(), 0);
  }
}

void FreightList::place(const RankCluster& cluster, std::size_t number,
                        std::vector<std::string>& cards) {
  for (const RankId rank : cluster.ranks) {
    const Bridge* bridge = bridge_of(cluster, rank);
    std::string card = bridge ? bridge->card : "";
    const double share = share_of(cluster, card);
    if (card.empty())
      card = cluster.label.empty() ? fmt::format("cluster {}", number) : cluster.label;
    const auto known = std::find(cards.begin(), cards.end(), card);
    const auto index = static_cast<std::size_t>(known - cards.begin());
    if (known == cards.end()) cards.push_back(card);
    if (rank.index() >= places_.size()) places_.resize(rank.index() + 1);
    places_[rank.index()] = {number, index, share};
  }
}

void FreightList::send(ReshardStage stage, RankId from, RankId to, const Piece& piece) {
  const double bytes = static_cast<double>(piece.box.count()) * element_bytes_;
  const bool across = cluster(from) != cluster(to);
  add(sent_, from, bytes, across);
  add(received_, to, bytes, across);
  freight_.push_back({stage, from, to, piece});
}

void FreightList::add(Load& load, RankId rank, double bytes, bool across) {
  load.by_rank[rank.index()] += bytes;
  const Place& place = places_[rank.index()];
  if (across) load.by_card[place.card] += bytes / place.share;
}

RankId FreightList::lightest(std::span<const RankId> candidates, const Load& load,
                             bool across) const {
  const auto weight = [&](RankId rank) {
    const double card = across ? load.by_card[places_[rank.index()].card] : 0.0;
    return std::tuple(card, load.by_rank[rank.index()], rank);
  };
  return *std::min_element(candidates.begin(), candidates.end(),
                           [&](RankId a, RankId b) { return weight(a) < weight(b); });
}

std::vector<Box> cut(const Box& box, std::size_t slices, std::int64_t smallest) {
  const std::int64_t wanted = std::min(static_cast<std::int64_t>(slices),
                                       box.count() / std::max<std::int64_t>(smallest, 1));
  if (wanted < 2) return {box};
  std::size_t along = 0;  // the first that is long enough keeps slices contiguous
  for (std::size_t dim = 0; dim < box.dims && box.extent(along) < wanted; ++dim)
    if (box.extent(dim) > box.extent(along)) along = dim;

  const std::int64_t parts = std::min(wanted, box.extent(along));
  std::vector<Box> cuts(parts, box);
  for (std::int64_t i = 0; i < parts; ++i) {
    Box& slice = cuts[i];
    slice.first[along] = box.first[along] + share(box.extent(along), i, parts);
    slice.last[along] = box.first[along] + share(box.extent(along), i + 1, parts);
  }
  return cuts;
}

namespace {

/// Ranks by cluster, in the order of clusters.
using Groups = std::map<std::size_t, std::vector<RankId>>;

Groups group(const std::vector<RankId>& ranks, const FreightList& list) {
  Groups groups;
  for (const RankId rank : ranks) groups[list.cluster(rank)].push_back(rank);
  return groups;
}

/// Returns the ranks at which a sum may be made so that it travels least: ranks that want it, in a
/// cluster that has summands, and best with a summand themselves.
std::vector<RankId> root_candidates(const Shipment& shipment, const Groups& summands,
                                    const FreightList& list) {
  std::vector<RankId> near, holding;
  for (const RankId rank : shipment.targets) {
    if (!summands.contains(list.cluster(rank))) continue;
    near.push_back(rank);
    if (std::binary_search(shipment.sources.begin(), shipment.sources.end(), rank))
      holding.push_back(rank);
  }
  if (!holding.empty()) return holding;
  if (!near.empty()) return near;
  // No rank near wants the sum: a single cluster of summands adds at home and delivers the sum.
  return summands.size() == 1 ? shipment.sources : shipment.targets;
}

/// Chooses where sums are made, and sends the summands there.
class Adder {
 public:
  Adder(FreightList& list, std::vector<Sum>& sums) : list_(list), sums_(sums) {}

  /// Adds up one slice of a shipment; returns it with the only source it has afterwards.
  Shipment add(const Box& box, const Shipment& shipment, const Groups& groups,
               const std::vector<RankId>& candidates) {
    const RankId root = list_.lightest_receiver(candidates, groups.size() > 1);
    const bool wants = std::binary_search(shipment.targets.begin(), shipment.targets.end(), root);
    const ReshardPlace into = wants ? ReshardPlace::result : ReshardPlace::sum;
    std::int32_t sum = no_sum;
    if (groups.size() == 1) {
      sum = sum_at(root, ReshardStage::sum_inside, box, into, of_source(shipment.sources));
    } else {
      std::vector<Sum::Summand> summands;
      for (const auto& [cluster, ranks] : groups)
        summands.push_back(sum_of_cluster(box, cluster, ranks, root));
      sum = sum_at(root, ReshardStage::sum_across, box, into, std::move(summands));
    }
    return {box, into, wants ? no_sum : sum, {root}, without(shipment.targets, root)};
  }

 private:
  static std::vector<Sum::Summand> of_source(const std::vector<RankId>& ranks) {
    std::vector<Sum::Summand> summands;
    for (const RankId rank : ranks) summands.push_back({rank});
    return summands;
  }

  static std::vector<RankId> without(std::vector<RankId> ranks, RankId rank) {
    ranks.erase(std::remove(ranks.begin(), ranks.end(), rank), ranks.end());
    return ranks;
  }

  /// The cluster's contribution to the sum at `root`.
  Sum::Summand sum_of_cluster(const Box& box, std::size_t cluster, const std::vector<RankId>& ranks,
                              RankId root) {
    if (ranks.size() == 1) return {ranks.front()};
    const RankId at = cluster == list_.cluster(root) ? root : list_.lightest_sender(ranks, true);
    const std::int32_t sum =
        sum_at(at, ReshardStage::sum_inside, box, ReshardPlace::sum, of_source(ranks));
    return {at, ReshardPlace::sum, sum};
  }

  std::int32_t sum_at(RankId at, ReshardStage stage, const Box& box, ReshardPlace into,
                      std::vector<Sum::Summand> summands) {
    const auto number = static_cast<std::int32_t>(sums_.size());
    for (const Sum::Summand& summand : summands)
      if (summand.rank != at)
        list_.send(stage, summand.rank, at, {box, summand.from, summand.from_sum, number});
    sums_.push_back({at, stage, box, into, std::move(summands)});
    return number;
  }

  FreightList& list_;
  std::vector<Sum>& sums_;
};

/// The part of a shipment that one cluster lacks.
struct Need {
  const Shipment* shipment = nullptr;
  std::vector<RankId> sources;  ///< the ones inside the cluster; without any, all sources
  std::vector<RankId> targets;
  bool across = false;
  std::int64_t weight = 0;  ///< elements that leave the sources
};

std::vector<RankId> inside(const std::vector<RankId>& ranks, std::size_t cluster,
                           const FreightList& list) {
  std::vector<RankId> result;
  for (const RankId rank : ranks)
    if (list.cluster(rank) == cluster) result.push_back(rank);
  return result;
}

void add_needs(const Shipment& shipment, const FreightList& list, std::vector<Need>& needs) {
  std::vector<RankId> lacking;
  std::set_difference(shipment.targets.begin(), shipment.targets.end(), shipment.sources.begin(),
                      shipment.sources.end(), std::back_inserter(lacking));
  const std::int64_t count = shipment.box.count();
  std::vector<std::size_t> clusters;
  for (const RankId rank : lacking) clusters.push_back(list.cluster(rank));
  std::sort(clusters.begin(), clusters.end());
  clusters.erase(std::unique(clusters.begin(), clusters.end()), clusters.end());
  for (const std::size_t cluster : clusters) {
    Need need{&shipment, inside(shipment.sources, cluster, list), inside(lacking, cluster, list)};
    need.across = need.sources.empty();
    if (need.across) need.sources = shipment.sources;
    need.weight = count * static_cast<std::int64_t>(need.across ? 1 : need.targets.size());
    needs.push_back(std::move(need));
  }
}

/// Sends the whole box to every target.
void send_whole(const Need& need, FreightList& list) {
  const Shipment& shipment = *need.shipment;
  for (const RankId to : need.targets)
    list.send(ReshardStage::deliver, list.lightest_sender(need.sources, need.across), to,
              {shipment.box, shipment.from, shipment.from_sum});
}

/// Returns the slices per target, so that all sources find work where there are more of them than
/// targets.
std::size_t slices_per_target(const std::vector<Need>& needs) {
  std::size_t targets = 0;
  std::set<RankId> sources;
  for (const Need& need : needs) {
    if (!need.across) continue;
    targets += need.targets.size();
    sources.insert(need.sources.begin(), need.sources.end());
  }
  return std::max<std::size_t>(1, targets ? (sources.size() + targets - 1) / targets : 1);
}

/// Sends some slices to every target, which passes them on to the others.
void send_slices(const Need& need, std::size_t per_target, std::int64_t smallest_slice,
                 FreightList& list) {
  const Shipment& shipment = *need.shipment;
  const std::size_t targets = need.targets.size();
  const std::size_t most = std::min(per_target, need.sources.size());
  const std::vector<Box> slices = cut(shipment.box, targets * most, smallest_slice);
  if (!need.across && slices.size() == 1) return send_whole(need, list);
  for (std::size_t i = 0; i < slices.size(); ++i) {
    const RankId to = slices.size() < targets ? list.lightest_receiver(need.targets, need.across)
                                              : need.targets[i % targets];
    const RankId from = list.lightest_sender(need.sources, need.across);
    list.send(ReshardStage::deliver, from, to, {slices[i], shipment.from, shipment.from_sum});
    for (const RankId target : need.targets)
      if (target != to)
        list.send(ReshardStage::forward, to, target, {slices[i], ReshardPlace::result});
  }
}

}  // namespace

std::vector<Shipment> add_up(std::vector<Shipment> shipments, std::int64_t smallest_slice,
                             FreightList& list, std::vector<Sum>& sums) {
  std::stable_sort(shipments.begin(), shipments.end(), [](const Shipment& a, const Shipment& b) {
    return a.box.count() > b.box.count();
  });
  Adder adder(list, sums);
  std::vector<Shipment> remaining;
  for (Shipment& shipment : shipments) {
    if (shipment.sources.size() == 1 || shipment.targets.empty()) {
      remaining.push_back(std::move(shipment));
      continue;
    }
    const Groups groups = group(shipment.sources, list);
    const std::vector<RankId> candidates = root_candidates(shipment, groups, list);
    std::size_t slices = candidates.size();
    for (const auto& [cluster, ranks] : groups) slices = std::max(slices, ranks.size());
    for (const Box& slice : cut(shipment.box, slices, smallest_slice))
      remaining.push_back(adder.add(slice, shipment, groups, candidates));
  }
  return remaining;
}

void deliver(const std::vector<Shipment>& shipments, std::int64_t smallest_slice,
             FreightList& list) {
  std::vector<Need> needs;
  needs.reserve(shipments.size());
  for (const Shipment& shipment : shipments) add_needs(shipment, list, needs);
  std::stable_sort(needs.begin(), needs.end(), [](const Need& a, const Need& b) {
    return std::tuple(!a.across, -a.weight) < std::tuple(!b.across, -b.weight);
  });
  const std::size_t per_target = slices_per_target(needs);
  for (const Need& need : needs) {
    // Sums have been cut already.
    const bool spread =
        need.sources.size() >= need.targets.size() || need.shipment->from != ReshardPlace::source;
    if (spread && !need.across)
      send_whole(need, list);
    else
      send_slices(need, need.across ? per_target : 1, smallest_slice, list);
  }
}

}  // namespace heteroperf
