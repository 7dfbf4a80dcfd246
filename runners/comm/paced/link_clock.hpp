#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "runners/cluster/link_curve.hpp"

namespace heteroperf {

/// Nanoseconds of a host's clock that only runs forward.
using Instant = std::int64_t;

/// At most 30 years, so that sums of instants cannot overflow.
Instant to_duration(Seconds seconds);

/// Something that carries one message at a time: a token bucket that saves nothing up. Lock-free,
/// so it may lie in memory that processes share.
class Bucket {
 public:
  /// Takes it for `duration` from the first free moment that is not before `earliest`, which is
  /// the result. Calls of several ranks count in the order they are made.
  Instant take(Instant earliest, Instant duration);
  Instant free_at() const { return free_at_.load(std::memory_order_relaxed); }

 private:
  std::atomic<Instant> free_at_{0};
  static_assert(std::atomic<Instant>::is_always_lock_free);
};

/// When a message has left its sender, and when it is at its receiver.
struct Passage {
  Instant posted = 0, leaves = 0, arrives = 0;
  Instant took() const { return arrives - posted; }
  friend bool operator==(const Passage&, const Passage&) = default;
};

/// The card that a message leaves its host by. Directions do not disturb each other.
struct CardUse {
  Bucket* bucket = nullptr;     ///< null: no card limits it
  BytesPerSecond bandwidth{0};  ///< 0: does not limit
};

/// Sends `size` bytes over a link of one direction:
///   starts = max(posted, link free, card free)
///   leaves = starts + max(time(size) - latency, size / card bandwidth)
///   arrives = leaves + latency
/// The link is taken until it leaves, the card for size / card bandwidth: a card that is faster
/// than the link carries another rank's message meanwhile.
Passage pass(Instant posted, Bytes size, const LinkCurve& curve, Bucket& link, const CardUse& card);

/// A rank's place in modelled time. The clock runs behind the model after a wait that ended late;
/// what the rank does next counts from the modelled end of that wait, so errors do not add up.
class RankTimeline {
 public:
  Instant now(Instant clock) const { return clock - lag_; }
  Instant lag() const { return lag_; }
  /// A wait that began at modelled time `began`, for something due at `due`, is over at `clock`.
  void waited(Instant began, Instant due, Instant clock) {
    lag_ = std::max<Instant>(0, clock - std::max(began, due));
  }
  /// The model goes on from the clock's time.
  void forgive() { lag_ = 0; }

 private:
  Instant lag_ = 0;
};

}  // namespace heteroperf
