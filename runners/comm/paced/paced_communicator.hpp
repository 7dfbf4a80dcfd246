#pragma once

#include <memory>
#include <optional>

#include "runners/cluster/cluster.hpp"
#include "runners/comm/communicator.hpp"
#include "runners/comm/control_channel.hpp"

namespace heteroperf {

/// Makes any transport behave like the links of `cluster`: a message of n bytes leaves when its
/// sender's card and its link are free (token buckets; ranks of one card share it), and arrives
/// latency + n/bandwidth after that. The rank sleeps to the absolute modelled time, so errors do
/// not add up and no privilege is needed. Collectives run as algorithms over the paced messages.
/// `world` is a group of as many ranks as the cluster has. Throws UserError otherwise. Collective.
///
/// No message and no collective ends before its time on these links by its caller's clock. With
/// `control` a sleep ends with PeerError when the run fails, however slow the link is.
std::unique_ptr<Communicator> make_paced_communicator(
    std::unique_ptr<Communicator> world, Cluster cluster,
    std::shared_ptr<const ControlChannel> control = nullptr);

/// Tells how well this rank has kept to the modelled times since the start, in all its groups.
struct PaceReport {
  std::uint64_t waits = 0;       ///< waits for a message sent or received
  std::uint64_t late_waits = 0;  ///< ended later than the model by over 1 % of the message's time
  Seconds greatest_lag{0};       ///< the most by which a wait ended behind the model
  /// Ranks that share a card could not share its bucket, so each has an equal part of it.
  bool cards_divided = false;
};

/// The report of a paced communicator; empty for any other.
std::optional<PaceReport> pace_report(const Communicator& communicator);

}  // namespace heteroperf
