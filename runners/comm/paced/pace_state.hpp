#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "runners/comm/control_channel.hpp"
#include "runners/comm/paced/card_table.hpp"
#include "runners/comm/paced/paced_communicator.hpp"

namespace heteroperf {

/// One rank's part of the model, for all groups it is in. Ranks are the world's. Any thread.
class PaceState {
 public:
  /// Collective over `world`. `control` may be null.
  PaceState(Communicator& world, Cluster cluster, std::shared_ptr<const ControlChannel> control);

  RankId self() const { return self_; }
  bool same_clock(RankId rank) const { return cards_.same_clock(rank); }
  Passage send(Instant posted, Bytes size, RankId to);
  /// A wait is over, so much too late; its message took `took`, as the model has it.
  void waited(Instant late, Instant took);
  /// For a wait until `due`: throws PeerError once the run has failed, and Error{interrupted} two
  /// seconds after it was asked to stop.
  void check_run(Instant due);
  /// Checks now and then.
  void sleep_until(Instant due);
  PaceReport report() const;

 private:
  const Cluster cluster_;
  const RankId self_;
  const std::shared_ptr<const ControlChannel> control_;
  std::atomic<Instant> stop_seen_{0};
  CardTable cards_;
  std::vector<Bucket> links_;  ///< to each rank
  mutable std::mutex mutex_;   ///< of what follows, and of the links
  PaceReport report_;
};

}  // namespace heteroperf
