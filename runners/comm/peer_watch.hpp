#pragma once

#include <optional>
#include <span>

#include "runners/comm/control_channel.hpp"

namespace heteroperf {

/// What a wait asks while it waits.
class PeerWatch {
 public:
  virtual ~PeerWatch() = default;

  /// Why the wait is in vain: the run broke, or one of the awaited ranks (of the world) has
  /// finished its work. Empty while there is hope. Cheap; called from the waiting loop.
  virtual std::optional<RankFailure> failure_among(std::span<const RankId> awaited) const = 0;
};

}  // namespace heteroperf
