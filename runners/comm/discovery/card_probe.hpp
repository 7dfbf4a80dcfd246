#pragma once

#include <functional>
#include <string>
#include <vector>

#include "runners/cluster/cluster.hpp"
#include "runners/comm/communicator.hpp"

namespace heteroperf {

/// What the ranks of one host carry to other hosts.
struct HostRate {
  BytesPerSecond alone{0};     ///< of one rank while the others rest; past any burst
  BytesPerSecond together{0};  ///< of all ranks at once
  Bytes burst{0};              ///< that pass faster after a pause; 0: none was seen
};

/// Measures one host after the other: its first rank alone, then all its ranks at once, each to a
/// rank of another host. Writes what limits them into their cards (see note_host_rate). Does
/// nothing with one host, or when a host is not known. `before_host` runs on every rank before
/// each. Links are known already. Collective; the same result on all ranks.
void measure_cards(Communicator& world, Cluster& cluster,
                   const std::function<void()>& before_host = nullptr);

/// What was measured of a host whose `ranks` (> 0) share it, into the cluster: where all ranks at
/// once get less than three quarters of what each gets alone, or a burst shows a shaper, the cards
/// of these ranks together have the bandwidth of all at once. Ranks without a card get one, called
/// "host/network".
void note_host_rate(Cluster& cluster, const std::string& host, const HostRate& rate);

/// From the time in which one rank has sent `size` and got an answer.
HostRate host_rate(const LinkCurve& link, Bytes size, Seconds time);

/// What passes at once although the link carries `rate` in the long run: the most that a message of
/// 16 KiB or more is ahead of the rate, of those that are 1.5 times as fast or more. 0 where none
/// is, or the largest.
Bytes burst_of(const LinkCurve& link, BytesPerSecond rate);

}  // namespace heteroperf
