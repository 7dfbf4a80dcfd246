#include "runners/comm/reshard/freight.hpp"

#include <algorithm>
#include <functional>
#include <iterator>

// Choosing who sends what.
//
// Every choice goes by *load*: the elements that a rank has been given to send or to receive so
// far. The least loaded candidate gets the next box, the heaviest boxes are given first. That is
// the greedy rule of scheduling by longest processing time.
//
// Sums: the summands of a box meet at a rank that wants the sum and, where possible, has a summand
// itself. Deliveries: where more ranks want a box than have it, each of them gets some slices and
// passes them on to the others (a scatter followed by an all-gather), so that all of them work.

namespace heteroperf {

void FreightList::send(ReshardStage stage, RankId from, RankId to, const Piece& piece) {
  sent_[from.index()] += piece.box.count();
  received_[to.index()] += piece.box.count();
  freight_.push_back({stage, from, to, piece});
}

RankId FreightList::lightest(std::span<const RankId> candidates, const Load& load) {
  return *std::ranges::min_element(
      candidates, {}, [&](RankId rank) { return std::pair(load[rank.index()], rank); });
}

namespace {

/// Returns ⌊extent·i/parts⌋ without overflow.
std::int64_t share(std::int64_t extent, std::int64_t i, std::int64_t parts) {
  return extent / parts * i + extent % parts * i / parts;
}

/// Cuts a box into at most `slices` slices along one dimension. No slice is smaller than `smallest`
/// elements, unless the box itself is.
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

/// Sends some slices to every target, which passes them on to the others; a box that is not cut
/// goes to each of them as a whole, and so do boxes that as many ranks have as want it.
void send_to_targets(const Shipment& shipment, std::span<const RankId> targets,
                     std::int64_t smallest_slice, FreightList& list) {
  const auto send = [&](const Box& box, RankId to) {
    list.send(ReshardStage::deliver, list.lightest_sender(shipment.sources), to,
              {box, shipment.from});
  };
  // Sums have been cut already.
  const bool spread =
      shipment.sources.size() >= targets.size() || shipment.from != ReshardPlace::source;
  const std::vector<Box> slices = cut(shipment.box, spread ? 1 : targets.size(), smallest_slice);
  if (slices.size() == 1) {
    for (const RankId to : targets) send(shipment.box, to);
    return;
  }
  for (std::size_t i = 0; i < slices.size(); ++i) {
    const RankId to = slices.size() < targets.size() ? list.lightest_receiver(targets) : targets[i];
    send(slices[i], to);
    for (const RankId target : targets)
      if (target != to)
        list.send(ReshardStage::forward, to, target, {slices[i], ReshardPlace::result});
  }
}

}  // namespace

std::vector<Shipment> add_up(std::vector<Shipment> shipments, std::int64_t smallest_slice,
                             FreightList& list, std::vector<Sum>& sums) {
  const auto count = [](const Shipment& shipment) { return shipment.box.count(); };
  std::ranges::stable_sort(shipments, std::greater(), count);
  std::vector<Shipment> remaining;
  for (Shipment& shipment : shipments) {
    const auto& [box, from, sources, targets] = shipment;
    if (sources.size() == 1 || targets.empty()) {
      remaining.push_back(std::move(shipment));
      continue;
    }
    std::vector<RankId> candidates;
    std::ranges::set_intersection(targets, sources, std::back_inserter(candidates));
    if (candidates.empty()) candidates = targets;
    for (const Box& slice : cut(box, std::max(candidates.size(), sources.size()), smallest_slice)) {
      const RankId root = list.lightest_receiver(candidates);
      const auto sum = static_cast<std::int32_t>(sums.size());
      for (const RankId rank : sources)
        if (rank != root) list.send(ReshardStage::sum, rank, root, {slice, from, sum});
      sums.push_back({root, slice, sources});
      Shipment rest{slice, ReshardPlace::result, {root}, targets};
      std::erase(rest.targets, root);
      remaining.push_back(std::move(rest));
    }
  }
  return remaining;
}

void deliver(const std::vector<Shipment>& shipments, std::int64_t smallest_slice,
             FreightList& list) {
  struct Need {
    const Shipment* shipment;
    std::vector<RankId> targets;  ///< those that lack the box
    std::int64_t weight() const { return shipment->box.count() * std::ssize(targets); }
  };
  std::vector<Need> needs;
  needs.reserve(shipments.size());
  for (const Shipment& shipment : shipments) {
    Need need{&shipment, {}};
    std::ranges::set_difference(shipment.targets, shipment.sources,
                                std::back_inserter(need.targets));
    if (!need.targets.empty()) needs.push_back(std::move(need));
  }
  std::ranges::stable_sort(needs, std::greater(), &Need::weight);
  for (const Need& need : needs)
    send_to_targets(*need.shipment, need.targets, smallest_slice, list);
}

}  // namespace heteroperf
