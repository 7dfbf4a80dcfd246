#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "metrics/base/clock.hpp"
#include "runners/cluster/cluster.hpp"

namespace heteroperf {

/// Nanoseconds of a host's clock that only runs forward.
using Instant = std::int64_t;

/// The clock that all processes of this host share.
inline Instant host_now() { return now_ns(); }
/// Sleeps until `wake` or a little longer. For looks in between, which leave the core to others.
void nap_until(Instant wake);
/// Sleeps until `due`, spinning for the last moments so as not to be late.
void sleep_until(Instant due);

/// A number that is equal on ranks whose host_now() agree: the kernel's boot id. 0 when unknown.
std::uint64_t host_clock_id();

/// Rounds to nanoseconds; at most 30 years, so that sums of instants cannot overflow.
Instant to_duration(Seconds seconds);

/// A link or card that carries one message at a time: a token bucket. Lock-free, so it may lie in
/// memory that processes share. Bits that are all zero are a new one.
class Bucket {
 public:
  /// Takes the bucket for `duration` from the first free moment that is not more than `saved`
  /// before `earliest`, and returns that moment: so much of an idle time is made up for. Calls of
  /// several ranks count in the order they are made.
  Instant take(Instant earliest, Instant duration, Instant saved = 0);
  Instant free_at() const { return free_at_.load(std::memory_order_relaxed); }

 private:
  std::atomic<Instant> free_at_{0};
  static_assert(std::atomic<Instant>::is_always_lock_free);
};

/// The modelled times of a message: posted, gone from its sender, and at its receiver.
struct Passage {
  Instant posted = 0, leaves = 0, arrives = 0;
  Instant took() const { return arrives - posted; }
  friend bool operator==(const Passage&, const Passage&) = default;
};

/// The card by which a message leaves its host. The two directions do not disturb each other.
struct CardUse {
  Bucket* bucket = nullptr;     ///< null: no card limits it
  BytesPerSecond bandwidth{0};  ///< 0: does not limit
  Bytes burst{0};               ///< bytes that pass at the link's speed after a pause
};

/// Sends `size` bytes over a link of one direction:
///   card starts = max(max(posted, link free) - burst / card bandwidth, card free)
///   starts = max(posted, link free, card starts)
///   leaves = max(starts + time(size) - latency, card starts + size / card bandwidth)
///   arrives = leaves + latency
/// The link is taken until it leaves, the card for size / card bandwidth: a card that is faster
/// than the link carries another rank's message meanwhile.
Passage pass(Instant posted, Bytes size, const LinkCurve& curve, Bucket& link, const CardUse& card);

/// A rank's place in modelled time. After a wait that ended late, the rank is behind the model.
/// Within an operation its next message counts from the modelled end of that wait, so errors do not
/// add up. Outside of an operation, and from one to the next, everything counts from the clock, so
/// that no measurement shows less time than the links need.
class RankTimeline {
 public:
  Instant now(Instant clock) const { return clock - lag_; }
  /// A wait that began at modelled time `began`, for something due at `due`, is over at `clock`.
  /// Returns its lateness.
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

/// True when messages between two ranks pass through a card: the ranks live on different hosts or,
/// where a host is not known, in different clusters.
bool leaves_host(const RankPlace& from, const RankPlace& to);

}  // namespace heteroperf
