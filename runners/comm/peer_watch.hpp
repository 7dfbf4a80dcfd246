#pragma once

#include <optional>
#include <span>

#include "metrics/base/quantity.hpp"
#include "runners/comm/control_channel.hpp"

namespace heteroperf {

/// What a wait asks while it waits.
class PeerWatch {
 public:
  virtual ~PeerWatch() = default;

  /// Why the wait is in vain: the run broke, or one of the awaited ranks (of the world) has
  /// finished its work. Empty while there is hope. Cheap; called from the waiting loop.
  virtual std::optional<RankFailure> failure_among(std::span<const RankId> awaited) const = 0;

  /// A wait that lasts tells again and again what it still needs (all of `needed`), and the bytes
  /// that this rank has under way; so living ranks that wait for each other in vain are found.
  /// Other threads that have asked failure_among() may be about to send what a peer needs, unless
  /// they wait, too.
  virtual void waits_for(std::span<const RankId> /*needed*/, Bytes /*under_way*/) const {}
  virtual void waits_no_more() const {}
};

}  // namespace heteroperf
