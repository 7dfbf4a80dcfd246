#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "metrics/base/quantity.hpp"

namespace heteroperf {

/// A round for each message such that no rank sends twice, nor receives twice, in one round.
struct MessageRounds {
  int count = 0;  ///< most messages that one rank sends, or receives: no schedule has fewer
  std::vector<std::int32_t> round;  ///< of each message
};

/// Edge colouring of the bipartite multigraph of senders and receivers with as many colours as its
/// largest degree (König 1916), by alternating paths in O(messages · ranks) at worst.
/// Deterministic. Entries are (sender, receiver); repeated pairs are allowed.
MessageRounds message_rounds(std::span<const std::pair<RankId, RankId>> messages);

}  // namespace heteroperf
