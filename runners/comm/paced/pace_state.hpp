#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "runners/comm/paced/link_clock.hpp"
#include "runners/comm/paced/paced_communicator.hpp"

namespace heteroperf {

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
  bool same_clock(RankId rank) const { return same_clock_[position(rank)]; }

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
