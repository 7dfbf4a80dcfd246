#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "metrics/base/quantity.hpp"
#include "runners/comm/reshard/reshard_plan.hpp"

namespace heteroperf {

/// A box under way, before boxes are merged into messages.
struct Freight {
  ReshardStage stage;
  RankId from, to;
  Piece piece;
};

/// The freight of a plan, and its load on ranks and on the cards of their clusters, from which the
/// least loaded rank is chosen.
class FreightList {
 public:
  /// `layouts` are the ones to be planned. Throws UserError as plan_reshard does.
  FreightList(const ReshardConfig& config, std::span<const Layout* const> layouts);

  std::size_t cluster(RankId rank) const { return places_[rank.index()].cluster; }

  void send(ReshardStage stage, RankId from, RankId to, const Piece& piece);
  /// Returns the candidate with the least load: first on its card where the freight goes `across`
  /// to another cluster, then on the rank; the lowest rank of equals.
  RankId lightest_sender(std::span<const RankId> candidates, bool across) const {
    return lightest(candidates, sent_, across);
  }
  RankId lightest_receiver(std::span<const RankId> candidates, bool across) const {
    return lightest(candidates, received_, across);
  }
  const std::vector<Freight>& freight() const { return freight_; }

 private:
  static constexpr std::size_t nowhere = ~std::size_t{0};
  struct Place {
    std::size_t cluster = nowhere, card = 0;
    double share = 1.0;  ///< the card's share of its cluster's bandwidth
  };
  struct Load {
    std::vector<double> by_card;  ///< bytes per share
    std::vector<double> by_rank;
  };
  /// Notes the cluster and the card of each rank of a cluster.
  void place(const RankCluster& cluster, std::size_t number, std::vector<std::string>& cards);
  RankId lightest(std::span<const RankId> candidates, const Load& load, bool across) const;
  void add(Load& load, RankId rank, double bytes, bool across);

  std::vector<Place> places_;  ///< by rank
  double element_bytes_;
  Load sent_, received_;
  std::vector<Freight> freight_;
};

/// A box that `sources` have and `targets` shall have.
struct Shipment {
  Box box;
  ReshardPlace from = ReshardPlace::source;
  std::int32_t from_sum = no_sum;
  std::vector<RankId> sources, targets;  ///< ascending
};

/// Cuts a box into at most `slices` slices along one dimension. No slice is smaller than `smallest`
/// elements, unless the box itself is.
std::vector<Box> cut(const Box& box, std::size_t slices, std::int64_t smallest);

/// Plans the stages sum_inside and sum_across: the sources of every shipment hold summands, which
/// meet at one rank. Returns the shipments that remain to be delivered: boxes with one source that
/// has the value.
std::vector<Shipment> add_up(std::vector<Shipment> shipments, std::int64_t smallest_slice,
                             FreightList& list, std::vector<Sum>& sums);

/// Plans the stages deliver and forward of all shipments: first those that cross between clusters,
/// then the heaviest first (longest processing time first).
void deliver(const std::vector<Shipment>& shipments, std::int64_t smallest_slice,
             FreightList& list);

/// A round for each message such that no rank sends twice, nor receives twice, in a round.
struct MessageRounds {
  /// The most messages that one rank sends, or receives; no schedule has fewer rounds.
  int count = 0;
  std::vector<std::int32_t> round;  ///< by message
};

/// Colours the edges of the bipartite multigraph of senders and receivers with as many colours as
/// its largest degree (König 1916), by alternating paths in O(messages · ranks) at worst. The
/// entries are (sender, receiver); a pair may occur several times. Deterministic.
MessageRounds message_rounds(std::span<const std::pair<RankId, RankId>> messages);

}  // namespace heteroperf
