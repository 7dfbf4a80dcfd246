#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
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

/// The freight of a plan, and its load on ranks, from which the least loaded rank is chosen.
class FreightList {
 public:
  /// Ranks of the plan are below `ranks`.
  explicit FreightList(std::size_t ranks) : sent_(ranks, 0), received_(ranks, 0) {}

  void send(ReshardStage stage, RankId from, RankId to, const Piece& piece);
  /// Returns the candidate with the least load; the lowest rank of equals.
  RankId lightest_sender(std::span<const RankId> candidates) const {
    return lightest(candidates, sent_);
  }
  RankId lightest_receiver(std::span<const RankId> candidates) const {
    return lightest(candidates, received_);
  }
  const std::vector<Freight>& freight() const { return freight_; }

 private:
  using Load = std::vector<std::int64_t>;  ///< elements by rank
  static RankId lightest(std::span<const RankId> candidates, const Load& load);

  Load sent_, received_;
  std::vector<Freight> freight_;
};

/// A box that `sources` have and `targets` shall have.
struct Shipment {
  Box box;
  ReshardPlace from = ReshardPlace::source;  ///< or result
  std::vector<RankId> sources, targets;      ///< ascending
};

/// Plans the stage `sum`: the sources of every shipment hold summands, which meet at one rank that
/// wants the sum. Returns the shipments that remain to be delivered: boxes with one source that has
/// the value.
std::vector<Shipment> add_up(std::vector<Shipment> shipments, std::int64_t smallest_slice,
                             FreightList& list, std::vector<Sum>& sums);

/// Plans the stages deliver and forward of all shipments, the heaviest first (longest processing
/// time first).
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
