#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runners/cluster/cluster.hpp"
#include "runners/comm/communicator.hpp"
#include "runners/comm/paced/link_clock.hpp"

namespace heteroperf {

/// Whether two ranks' messages pass through a card: they live on different hosts or, where a host
/// is not known, in different clusters.
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

  /// The first of this rank's cards that is free; no bucket when it has none, or one without limit.
  CardUse nearest_free() const;
  Sharing sharing() const { return sharing_; }
  /// Ranks whose clock is this rank's.
  bool same_clock(RankId rank) const;

 private:
  struct Hosts;
  bool share_memory(Communicator& world, const Hosts& hosts, std::size_t cards);

  std::vector<bool> same_clock_;
  std::unique_ptr<Bucket[]> own_;
  Bucket* shared_ = nullptr;  ///< mapped
  std::size_t shared_bytes_ = 0;
  std::vector<CardUse> cards_;  ///< this rank's, nearest first
  Sharing sharing_ = Sharing::buckets;
};

}  // namespace heteroperf
