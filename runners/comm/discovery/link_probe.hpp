#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "runners/cluster/cluster.hpp"
#include "runners/cluster/link_curve.hpp"
#include "runners/comm/communicator.hpp"
#include "runners/comm/discovery/rank_descriptor.hpp"

namespace heteroperf {

/// Says which of the repetitions of one size counts.
enum class Repetition {
  median,  ///< the time that a user of the link gets
  least,   ///< the best that the link can do: noise only adds
};

struct PingPong {
  RankId first, second;
  std::vector<Bytes> sizes;  ///< growing
  Seconds budget{0};         ///< per size
  Repetition repetition = Repetition::median;
};

/// A group whose messages are timed, and the one that tells its ranks what to do. A communicator
/// on the host may be both.
struct LinkGroup {
  LinkGroup(Communicator& both) : group(both), harness(both) {}
  LinkGroup(Communicator& timed, Communicator& telling, std::vector<RankId> ranks = {})
      : group(timed), harness(telling), members(std::move(ranks)) {}

  Communicator& group;          ///< messages are in its memory, which may be a device's
  Communicator& harness;        ///< on the host
  std::vector<RankId> members;  ///< the group's ranks as ranks of the harness; empty: the same

  /// The rank in the group of a rank of the harness.
  RankId rank_in_group(RankId rank) const;
};

/// Measures halves of round trips between two ranks of the harness, which both call this; others do
/// not. `first` gets a point per size, `second` nothing. After a message of 1 MiB or more that
/// takes longer than the budget, or of more than 16 KiB that takes 20 times as long, larger ones
/// are left out. Throws PeerError when the peer is gone.
std::vector<LinkCurve::Point> ping_pong(const LinkGroup& links, const PingPong& plan);

/// Cuts the time of a message that took longer than a larger one: disturbances only make it longer.
void cut_to_larger(std::vector<LinkCurve::Point>& points);
/// Makes a curve of measured points, of which noise is taken out: a message takes no longer than a
/// larger one. Points of no time are left out; there must be one of more than 0 bytes.
LinkCurve curve_of(std::vector<LinkCurve::Point> points);

/// Distributes measurements, given by the hosts that each touches, over rounds; returns the indices
/// of each round. No two of a round touch the same host, as they would share its cores, memory and
/// cards and measure each other. Each measurement is in the first round that has room. A host that
/// is not known ("") may be any.
std::vector<std::vector<std::size_t>> disjoint_rounds(
    const std::vector<std::set<std::string>>& hosts_of_each);

struct LinkSweep {
  std::vector<Bytes> sizes;  ///< growing strictly; empty: 64 B … 16 MiB by factors of 4
  /// Per pair and size. Sizes beyond one that takes longer are left out.
  Seconds budget{0.02};
  /// Above this number of ranks only representatives of each pair of clusters are measured.
  int all_pairs_up_to = 16;
  /// Called on every rank before each round of measurements, of which `done` of `all` are over; may
  /// throw, on all ranks alike.
  std::function<void(std::size_t done, std::size_t all)> before_round = nullptr;
};

/// Measures links with ping-pong (median) and fills ranks, cards and links of a cluster. Device
/// classes are the caller's to fill, and measure_cards() finds what cards carry. The harness has
/// all ranks. Collective; the same result on all ranks.
Cluster measure_links(const LinkGroup& links, const RankClusters& clusters,
                      const std::vector<RankDescriptor>& descriptors, const LinkSweep& sweep = {});

/// Measures the bandwidth between two ranks in a few milliseconds. Collective in the harness: the
/// pair measures and tells everybody, and the others wait for that.
BytesPerSecond shared_bandwidth(const LinkGroup& links, RankId a, RankId b);

/// The rates at which the ranks of one host send to other hosts.
struct HostRate {
  BytesPerSecond alone{0};     ///< one rank while the others rest; past any burst
  BytesPerSecond together{0};  ///< all ranks at once
  Bytes burst{0};              ///< bytes that pass faster after a pause; 0: none were seen
};

/// Measures one host after the other: its first rank alone, then all its ranks at once, each to a
/// rank of another host. Writes the limits that it finds into the cards (see note_host_rate). Does
/// nothing with one host, or when a host is not known. `before_host` runs on every rank before
/// each host. The links of `cluster` are known already. Collective; the same result on all ranks.
void measure_cards(Communicator& world, Cluster& cluster,
                   const std::function<void()>& before_host = nullptr);

/// Writes the rates of a host into the cards of its ranks (at least one). Where all ranks at once
/// get less than three quarters of what each gets alone, or a burst shows a shaper, the cards of
/// these ranks together have the bandwidth of all at once. Ranks without a card get one, called
/// "host/network".
void note_host_rate(Cluster& cluster, const std::string& host, const HostRate& rate);

/// Works out the rate of a host from the time in which one rank has sent `size` bytes and got an
/// answer.
HostRate host_rate(const LinkCurve& link, Bytes size, Seconds time);

/// Returns the bytes that pass at once although the link carries `rate` in the long run: the most
/// that a message of 16 KiB or more is ahead of the rate, among messages that are at least 1.5
/// times as fast. 0 where there are none, or where the largest message is one of them.
Bytes burst_of(const LinkCurve& link, BytesPerSecond rate);

}  // namespace heteroperf
