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

/// Something that carries one message at a time: a token bucket. Lock-free, so it may lie in
/// memory that processes share.
class Bucket {
 public:
  /// Takes it for `duration` from the first free moment that is not more than `saved` before
  /// `earliest`, which is the result: as much of an idle time is made up for. Calls of several
  /// ranks count in the order they are made.
  Instant take(Instant earliest, Instant duration, Instant saved = 0);
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
  Bytes burst{0};               ///< that pass at the link's speed after a pause
};

/// Sends `size` bytes over a link of one direction:
///   card starts = max(max(posted, link free) - burst / card bandwidth, card free)
///   starts = max(posted, link free, card starts)
///   leaves = max(starts + time(size) - latency, card starts + size / card bandwidth)
///   arrives = leaves + latency
/// The link is taken until it leaves, the card for size / card bandwidth: a card that is faster
/// than the link carries another rank's message meanwhile.
Passage pass(Instant posted, Bytes size, const LinkCurve& curve, Bucket& link, const CardUse& card);

/// A rank's place in modelled time. Within an operation the clock runs behind the model after a
/// wait that ended late; what the rank does next counts from the modelled end of that wait, so
/// errors do not add up. Outside of one, and from one to the next, everything counts from the
/// clock: nobody who measures sees less time than the links need.
class RankTimeline {
 public:
  Instant now(Instant clock) const { return clock - lag_; }
  /// A wait that began at modelled time `began`, for something due at `due`, is over at `clock`.
  /// Returns by how much it was late.
  Instant waited(Instant began, Instant due, Instant clock) {
    const Instant late = std::max<Instant>(0, clock - std::max(began, due));
    if (in_operation_) lag_ = late;
    return late;
  }
  void begin_operation() {
    lag_ = 0;
    in_operation_ = true;
  }
  void end_operation() {
    lag_ = 0;
    in_operation_ = false;
  }

 private:
  Instant lag_ = 0;
  bool in_operation_ = false;
};

}  // namespace heteroperf
