#include "runners/comm/reshard/freight.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "metrics/base/error.hpp"

namespace heteroperf {
namespace {

/// The bridge whose card a rank uses: its own, else the last one before it, else the first.
const Bridge* bridge_of(const RankCluster& cluster, RankId rank) {
  const Bridge* found = cluster.bridges.empty() ? nullptr : &cluster.bridges.front();
  for (const Bridge& bridge : cluster.bridges)
    if (bridge.rank <= rank && (found->rank > rank || bridge.rank >= found->rank)) found = &bridge;
  return found;
}

double share_of(const RankCluster& cluster, const std::string& card) {
  for (const Bridge& bridge : cluster.bridges)
    if (bridge.card == card && bridge.share > 0) return bridge.share;
  return 1.0;
}

std::vector<RankId> ranks_of(std::span<const Layout* const> layouts) {
  std::set<RankId> all;
  for (const Layout* layout : layouts)
    for (const RankId rank : layout->ranks()) all.insert(rank);
  return {all.begin(), all.end()};
}

std::size_t places_needed(const ReshardConfig& config, const std::vector<RankId>& used) {
  std::int32_t last = used.empty() ? -1 : used.back().value();
  for (const RankCluster& cluster : config.clusters.clusters)
    for (const RankId rank : cluster.ranks) last = std::max(last, rank.value());
  return static_cast<std::size_t>(last + 1);
}

}  // namespace

RankPlaces::RankPlaces(const ReshardConfig& config, std::span<const Layout* const> layouts) {
  const std::vector<RankId> used = ranks_of(layouts);
  const std::size_t ranks = places_needed(config, used);
  cluster_.assign(ranks, nowhere);
  card_.assign(ranks, 0);
  share_.assign(ranks, 1.0);

  ProblemList problems;
  if (!config.cards.empty() && config.cards.size() < ranks)
    problems.add(fmt::format("network cards for {} ranks", config.cards.size()),
                 fmt::format("there are {}", ranks), "Name one for each rank, or none.");
  problems.throw_if_any();

  if (config.clusters.clusters.empty()) {
    RankCluster all{"", used, {}};
    place(all, 0, config);
  }
  for (std::size_t i = 0; i < config.clusters.clusters.size(); ++i)
    place(config.clusters.clusters[i], i, config);
  for (const RankId rank : used)
    if (cluster(rank) == nowhere)
      problems.add(fmt::format("rank {} is in no cluster", rank.value()), "a layout names it");
  problems.throw_if_any();
}

void RankPlaces::place(const RankCluster& cluster, std::size_t number,
                       const ReshardConfig& config) {
  for (const RankId rank : cluster.ranks) {
    cluster_[index(rank)] = number;
    const Bridge* bridge = bridge_of(cluster, rank);
    std::string card = bridge ? bridge->card : "";
    if (!config.cards.empty()) card = config.cards[index(rank)];
    share_[index(rank)] = share_of(cluster, card);
    if (card.empty())
      card = cluster.label.empty() ? fmt::format("cluster {}", number) : cluster.label;
    card_[index(rank)] = card_number(card);
  }
}

std::size_t RankPlaces::card_number(const std::string& name) {
  const auto found = std::find(names_.begin(), names_.end(), name);
  const auto number = static_cast<std::size_t>(found - names_.begin());
  if (found == names_.end()) names_.push_back(name);
  return number;
}

FreightList::FreightList(const RankPlaces& places, DataType type)
    : places_(places), element_bytes_(static_cast<double>(size_of(type))) {
  for (Load* load : {&sent_, &received_}) {
    load->by_card.assign(places.card_names().size(), 0);
    load->by_rank.assign(places.ranks(), 0);
  }
}

void FreightList::send(ReshardStage stage, RankId from, RankId to, const Piece& piece) {
  const double bytes = static_cast<double>(piece.box.count()) * element_bytes_;
  const bool across = places_.cluster(from) != places_.cluster(to);
  add(sent_, from, bytes, across);
  add(received_, to, bytes, across);
  freight_.push_back({stage, from, to, piece});
}

void FreightList::add(Load& load, RankId rank, double bytes, bool across) {
  load.by_rank[static_cast<std::size_t>(rank.value())] += bytes;
  if (across) load.by_card[places_.card(rank)] += bytes / places_.share(rank);
}

RankId FreightList::lightest(std::span<const RankId> candidates, const Load& load,
                             bool across) const {
  const auto weight = [&](RankId rank) {
    const double card = across ? load.by_card[places_.card(rank)] : 0.0;
    return std::tuple(card, load.by_rank[static_cast<std::size_t>(rank.value())], rank);
  };
  return *std::min_element(candidates.begin(), candidates.end(),
                           [&](RankId a, RankId b) { return weight(a) < weight(b); });
}

RankId FreightList::lightest_sender(std::span<const RankId> candidates, bool across) const {
  return lightest(candidates, sent_, across);
}

RankId FreightList::lightest_receiver(std::span<const RankId> candidates, bool across) const {
  return lightest(candidates, received_, across);
}

namespace {

/// ⌊extent·i/parts⌋ without overflow
std::int64_t share(std::int64_t extent, std::int64_t i, std::int64_t parts) {
  return extent / parts * i + extent % parts * i / parts;
}

}  // namespace

std::vector<Box> cut(const Box& box, std::size_t slices, std::int64_t smallest) {
  const std::int64_t wanted = std::min(static_cast<std::int64_t>(slices),
                                       box.count() / std::max<std::int64_t>(smallest, 1));
  if (wanted < 2) return {box};
  std::size_t along = 0;  // the first that is long enough keeps slices contiguous
  for (std::size_t dim = 0; dim < box.dims && box.extent(along) < wanted; ++dim)
    if (box.extent(dim) > box.extent(along)) along = dim;

  const std::int64_t parts = std::min(wanted, box.extent(along));
  std::vector<Box> cuts(static_cast<std::size_t>(parts), box);
  for (std::int64_t i = 0; i < parts; ++i) {
    Box& slice = cuts[static_cast<std::size_t>(i)];
    slice.first[along] = box.first[along] + share(box.extent(along), i, parts);
    slice.last[along] = box.first[along] + share(box.extent(along), i + 1, parts);
  }
  return cuts;
}

namespace {

/// What one cluster lacks of a parcel.
struct Need {
  const Parcel* parcel = nullptr;
  std::vector<RankId> sources;  ///< those inside; without any, all of the parcel's
  std::vector<RankId> targets;
  bool across = false;
  std::int64_t weight = 0;  ///< elements that leave the sources
};

std::vector<RankId> inside(const std::vector<RankId>& ranks, std::size_t cluster,
                           const RankPlaces& places) {
  std::vector<RankId> found;
  for (const RankId rank : ranks)
    if (places.cluster(rank) == cluster) found.push_back(rank);
  return found;
}

void add_needs(const Parcel& parcel, const RankPlaces& places, std::vector<Need>& needs) {
  std::vector<RankId> lacking;
  std::set_difference(parcel.targets.begin(), parcel.targets.end(), parcel.sources.begin(),
                      parcel.sources.end(), std::back_inserter(lacking));
  const std::int64_t count = parcel.box.count();
  std::vector<std::size_t> clusters;
  for (const RankId rank : lacking) clusters.push_back(places.cluster(rank));
  std::sort(clusters.begin(), clusters.end());
  clusters.erase(std::unique(clusters.begin(), clusters.end()), clusters.end());
  for (const std::size_t cluster : clusters) {
    Need need{&parcel, inside(parcel.sources, cluster, places), inside(lacking, cluster, places)};
    need.across = need.sources.empty();
    if (need.across) need.sources = parcel.sources;
    need.weight = count * static_cast<std::int64_t>(need.across ? 1 : need.targets.size());
    needs.push_back(std::move(need));
  }
}

/// Every target gets the whole box from a source.
void send_whole(const Need& need, FreightList& list) {
  const Parcel& parcel = *need.parcel;
  for (const RankId to : need.targets)
    list.send(ReshardStage::deliver, list.lightest_sender(need.sources, need.across), to,
              {parcel.box, parcel.from, parcel.from_sum});
}

/// Slices per target, so that all sources find work where there are more of them than targets.
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

/// Every target gets some slices from a source and passes them on to the others.
void send_slices(const Need& need, std::size_t per_target, std::int64_t smallest_slice,
                 FreightList& list) {
  const Parcel& parcel = *need.parcel;
  const std::size_t targets = need.targets.size();
  const std::size_t most = std::min(per_target, need.sources.size());
  const std::vector<Box> slices = cut(parcel.box, targets * most, smallest_slice);
  if (!need.across && slices.size() == 1) return send_whole(need, list);
  for (std::size_t i = 0; i < slices.size(); ++i) {
    const RankId to = slices.size() < targets ? list.lightest_receiver(need.targets, need.across)
                                              : need.targets[i % targets];
    const RankId from = list.lightest_sender(need.sources, need.across);
    list.send(ReshardStage::deliver, from, to, {slices[i], parcel.from, parcel.from_sum});
    for (const RankId other : need.targets)
      if (other != to)
        list.send(ReshardStage::forward, to, other, {slices[i], ReshardPlace::result});
  }
}

}  // namespace

void deliver(const std::vector<Parcel>& parcels, std::int64_t smallest_slice,
             const RankPlaces& places, FreightList& list) {
  std::vector<Need> needs;
  needs.reserve(parcels.size());
  for (const Parcel& parcel : parcels) add_needs(parcel, places, needs);
  std::stable_sort(needs.begin(), needs.end(), [](const Need& a, const Need& b) {
    return std::tuple(!a.across, -a.weight) < std::tuple(!b.across, -b.weight);
  });
  const std::size_t per_target = slices_per_target(needs);
  for (const Need& need : needs) {
    // Sums are cut already.
    const bool spread =
        need.sources.size() >= need.targets.size() || need.parcel->from != ReshardPlace::source;
    if (spread && !need.across)
      send_whole(need, list);
    else
      send_slices(need, need.across ? per_target : 1, smallest_slice, list);
  }
}

}  // namespace heteroperf
