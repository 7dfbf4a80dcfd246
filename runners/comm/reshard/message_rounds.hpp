#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "metrics/base/quantity.hpp"

namespace heteroperf {

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
