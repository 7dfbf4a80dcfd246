#pragma once

#include <functional>
#include <string>

#include "runners/cluster/cluster.hpp"
#include "runners/comm/communicator.hpp"

namespace heteroperf {

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
