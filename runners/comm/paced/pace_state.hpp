#pragma once

#include <mutex>
#include <vector>

#include "runners/comm/paced/card_table.hpp"
#include "runners/comm/paced/paced_communicator.hpp"

namespace heteroperf {

/// One rank's part of the model, for all groups it is in. Ranks are the world's. Any thread.
class PaceState {
 public:
  /// Collective over `world`.
  PaceState(Communicator& world, Cluster cluster);

  RankId self() const { return self_; }
  bool same_clock(RankId rank) const { return cards_.same_clock(rank); }
  /// A message posted now.
  Passage send(Bytes size, RankId to);
  Instant modelled_now() const;
  /// A wait that began at modelled time `began` is over: its message was due at `due` and took
  /// `took`, as the model has it.
  void waited(Instant began, Instant due, Instant took);
  /// See RankTimeline.
  void forgive();
  PaceReport report() const;

 private:
  const Cluster cluster_;
  const RankId self_;
  CardTable cards_;
  std::vector<Bucket> links_;  ///< to each rank
  mutable std::mutex mutex_;   ///< of what follows, and of the links
  RankTimeline timeline_;
  PaceReport report_;
};

}  // namespace heteroperf
