// Planning a reshard in four steps.
//
// The tiles of both layouts are intersected; each non-empty *box* is a *shipment*: ranks that have
// it and ranks that shall have it. Summands are added up first (add_up). Then every shipment is
// delivered: cut into slices where that spreads the work, each slice sent by the least loaded
// holder (deliver). Both steps write a list of *freight*, single boxes with sender and receiver.
// Finally the freight of a stage between two ranks becomes one *message*, and messages are coloured
// with *rounds* so that nobody sends or receives two at once.
#include "runners/comm/reshard/reshard_plan.hpp"

#include <algorithm>
#include <limits>
#include <tuple>

#include "metrics/base/error.hpp"
#include "runners/comm/reshard/freight.hpp"

namespace heteroperf {
namespace {

/// The overlap of two parts of one dimension.
struct Overlap {
  std::size_t from_part, to_part;
  std::int64_t first, last;
};

std::vector<Overlap> overlaps(const std::vector<std::int64_t>& from,
                              const std::vector<std::int64_t>& to) {
  std::vector<Overlap> result;
  for (std::size_t i = 0, j = 0; i + 1 < from.size() && j + 1 < to.size();) {
    const std::int64_t first = std::max(from[i], to[j]), last = std::min(from[i + 1], to[j + 1]);
    if (first < last) result.push_back({i, j, first, last});
    if (from[i + 1] <= to[j + 1])
      ++i;
    else
      ++j;
  }
  return result;
}

/// Returns every non-empty intersection of a tile of `from` with a tile of `to`.
std::vector<Shipment> intersect(const Layout& from, const Layout& to) {
  struct Overlapping {
    Box box;
    std::size_t from_tile = 0, to_tile = 0;
  };
  std::vector<Overlapping> boxes(1);
  boxes.front().box.dims = from.shape().size();
  for (std::size_t dim = 0; dim < from.shape().size(); ++dim) {
    const std::vector<Overlap> along = overlaps(from.boundaries(dim), to.boundaries(dim));
    std::vector<Overlapping> longer;
    longer.reserve(boxes.size() * along.size());
    for (const Overlapping& box : boxes)
      for (const Overlap& overlap : along) {
        Overlapping next = box;
        next.box.first[dim] = overlap.first;
        next.box.last[dim] = overlap.last;
        next.from_tile = box.from_tile * (from.boundaries(dim).size() - 1) + overlap.from_part;
        next.to_tile = box.to_tile * (to.boundaries(dim).size() - 1) + overlap.to_part;
        longer.push_back(next);
      }
    boxes = std::move(longer);
  }
  std::vector<Shipment> shipments;
  shipments.reserve(boxes.size());
  for (const Overlapping& box : boxes)
    shipments.push_back(
        {box.box, ReshardPlace::source, from.holders(box.from_tile), to.holders(box.to_tile)});
  return shipments;
}

std::vector<LocalCopy> local_copies(const std::vector<Shipment>& shipments) {
  std::vector<LocalCopy> copies;
  for (const Shipment& shipment : shipments)
    for (const RankId rank : shipment.targets)
      if (shipment.from == ReshardPlace::source &&
          std::binary_search(shipment.sources.begin(), shipment.sources.end(), rank))
        copies.push_back({rank, shipment.box});
  std::stable_sort(copies.begin(), copies.end(),
                   [](const LocalCopy& a, const LocalCopy& b) { return a.rank < b.rank; });
  return copies;
}

/// Orders freight by stage, sender and receiver.
std::uint64_t message_key(const Freight& freight) {
  return static_cast<std::uint64_t>(freight.stage) << 62 |
         static_cast<std::uint64_t>(freight.from.value()) << 31 |
         static_cast<std::uint64_t>(freight.to.value());
}

/// Makes one message of all freight of a stage between two ranks.
void merge(const std::vector<Freight>& freight, ReshardPlan& plan) {
  std::vector<std::pair<std::uint64_t, std::uint32_t>> order;
  order.reserve(freight.size());
  for (const Freight& next : freight)
    order.emplace_back(message_key(next), static_cast<std::uint32_t>(order.size()));
  std::sort(order.begin(), order.end());

  plan.pieces.reserve(freight.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    const Freight& next = freight[order[i].second];
    if (i == 0 || order[i].first != order[i - 1].first)
      plan.messages.push_back({next.stage, 0, next.from, next.to,
                               static_cast<std::uint32_t>(plan.pieces.size()), 0, Bytes(0)});
    ReshardMessage& message = plan.messages.back();
    ++message.pieces;
    message.size +=
        Bytes(static_cast<std::uint64_t>(next.piece.box.count()) * size_of(plan.config.type));
    plan.pieces.push_back(next.piece);
  }
}

void assign_rounds(ReshardPlan& plan) {
  for (std::size_t stage = 0; stage < reshard_stages; ++stage) {
    std::vector<ReshardMessage*> messages;
    for (ReshardMessage& message : plan.messages)
      if (static_cast<std::size_t>(message.stage) == stage) messages.push_back(&message);
    std::vector<std::pair<RankId, RankId>> ends;
    for (const ReshardMessage* message : messages) ends.emplace_back(message->from, message->to);
    const MessageRounds rounds = message_rounds(ends);
    plan.rounds[stage] = rounds.count;
    for (std::size_t i = 0; i < messages.size(); ++i) messages[i]->round = rounds.round[i];
  }
  std::stable_sort(plan.messages.begin(), plan.messages.end(),
                   [](const ReshardMessage& a, const ReshardMessage& b) {
                     return std::tuple(a.stage, a.round, a.from) <
                            std::tuple(b.stage, b.round, b.from);
                   });
}

std::int64_t smallest_slice(const ReshardConfig& config) {
  return static_cast<std::int64_t>(config.smallest_slice.value() / size_of(config.type));
}

ReshardPlan make_plan(const Layout& from, const Layout& to, const ReshardConfig& config,
                      GradientKind sources) {
  HETEROPERF_EXPECT(from.shape() == to.shape());
  ReshardPlan plan{from, to, sources, config, {}, {}, {}, {}, {}};

  std::vector<Shipment> shipments = intersect(from, to);
  std::size_t ranks = 0;
  for (const Layout* layout : {&from, &to})
    for (const RankId rank : layout->ranks()) ranks = std::max(ranks, rank.index() + 1);
  FreightList list(ranks);
  if (sources == GradientKind::partial)
    shipments = add_up(std::move(shipments), smallest_slice(config), list, plan.sums);
  plan.copies = local_copies(shipments);
  deliver(shipments, smallest_slice(config), list);

  merge(list.freight(), plan);
  assign_rounds(plan);
  return plan;
}

}  // namespace

ReshardConfig whole_boxes(DataType type) {
  return {type, Bytes(std::numeric_limits<std::int64_t>::max())};
}

ReshardPlan plan_reshard(const Layout& from, const Layout& to, const ReshardConfig& config) {
  return make_plan(from, to, config, GradientKind::replicate);
}

ReshardPlan plan_sum(const Layout& from, const Layout& to, const ReshardConfig& config) {
  return make_plan(from, to, config, GradientKind::partial);
}

ReshardPlan adjoint(const ReshardPlan& plan, GradientKind kind) {
  return make_plan(plan.to, plan.from, plan.config, kind);
}

}  // namespace heteroperf
