#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "metrics/base/clock.hpp"
#include "runners/cluster/link_curve.hpp"
#include "runners/comm/paced/paced_communicator.hpp"

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

/// The cards of a cluster as one rank sees them. Ranks of one host that name the same card share
/// its bucket through shared memory, be they threads or processes; where that cannot be had, each
/// rank has an equal share of the bandwidth to itself.
class CardTable {
 public:
  enum class Sharing { buckets, equal_shares };

  /// Collective over `world`, whose ranks are those of the cluster.
  CardTable(Communicator& world, const Cluster& cluster);
  ~CardTable();
  CardTable(const CardTable&) = delete;
  CardTable& operator=(const CardTable&) = delete;

  /// The first of this rank's cards that is free. Without a bucket when the rank has no card, or
  /// one without limit.
  CardUse nearest_free() const;
  Sharing sharing() const { return sharing_; }
  /// True for ranks whose clock is this rank's.
  bool same_clock(RankId rank) const { return same_clock_[rank.index()]; }

 private:
  struct Hosts;
  bool share_memory(Communicator& world, const Hosts& hosts, std::size_t cards);

  std::vector<bool> same_clock_;
  std::unique_ptr<Bucket[]> private_buckets_;
  Bucket* shared_ = nullptr;  ///< mapped
  std::size_t shared_bytes_ = 0;
  std::vector<CardUse> cards_;  ///< this rank's, nearest first
  Sharing sharing_ = Sharing::buckets;
};

/// One rank's part of the model, for all groups it is in. Ranks are those of the world. Any thread
/// may call it.
class PaceState {
 public:
  /// Collective over `world`. `control` may be null.
  PaceState(Communicator& world, Cluster cluster, std::shared_ptr<const ControlChannel> control);

  RankId self() const { return self_; }
  bool same_clock(RankId rank) const { return cards_.same_clock(rank); }
  /// Takes card and link for a message and returns its modelled times.
  Passage send(Instant posted, Bytes size, RankId to);
  /// A wait has ended by `late` too late, for a message that the model gives `took`.
  void waited(Instant late, Instant took);
  /// Called in a wait until `due`. Throws PeerError once the run has failed, and
  /// Error{interrupted} two seconds after it was asked to stop.
  void check_run(Instant due);
  /// Sleeps until `due` and calls check_run() now and then.
  void sleep_until(Instant due);
  PaceReport report() const;

 private:
  const Cluster cluster_;
  const RankId self_;
  const std::shared_ptr<const ControlChannel> control_;
  std::atomic<Instant> stop_seen_{0};
  CardTable cards_;
  std::vector<Bucket> links_;  ///< to each rank
  mutable std::mutex mutex_;   ///< guards the links and the report
  PaceReport report_;
};

}  // namespace heteroperf
