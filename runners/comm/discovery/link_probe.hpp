#pragma once

#include <set>
#include <string>
#include <vector>

#include "runners/cluster/link_curve.hpp"
#include "runners/comm/communicator.hpp"

namespace heteroperf {

/// Which of the repetitions of one size counts.
enum class Repetition {
  median,  ///< what a user of the link gets
  least,   ///< what the link can do: noise only adds
};

struct PingPong {
  RankId first, second;
  std::vector<Bytes> sizes;  ///< growing
  Seconds budget{0};         ///< per size
  Repetition repetition = Repetition::median;
};

/// A group whose messages are timed, and the one that tells its ranks what to do.
struct LinkGroup {
  Communicator& group;            ///< messages are in its memory, which may be a device's
  Communicator& harness;          ///< on the host; may be the group itself
  std::vector<RankId> members{};  ///< the group's ranks as ranks of the harness; empty: the same

  /// Of a rank of the harness.
  RankId rank_in_group(RankId rank) const;
};

/// Halves of round trips between two ranks of the harness, which both call this; others do not.
/// `first` gets a point per size, `second` nothing. After a message of 1 MiB or more that takes
/// longer than the budget, or of more than 16 KiB that takes 20 times as long, larger ones are left
/// out. Throws PeerError when the peer is gone.
std::vector<LinkCurve::Point> ping_pong(const LinkGroup& links, const PingPong& plan);
inline std::vector<LinkCurve::Point> ping_pong(Communicator& world, const PingPong& plan) {
  return ping_pong(LinkGroup{world, world}, plan);
}

/// A curve of measured points: a message takes no longer than a larger one, so noise that makes it
/// seem so is taken out. Points of no time are left out; there must be one of more than 0 bytes.
LinkCurve curve_of(std::vector<LinkCurve::Point> points);

/// Which measurements may run at once, by index, round by round, each in the first round that has
/// room: no two of a round touch the same host, as they would share its cores, memory and cards and
/// measure each other. A host that is not known ("") may be any.
std::vector<std::vector<std::size_t>> disjoint_rounds(
    const std::vector<std::set<std::string>>& hosts_of_each);

}  // namespace heteroperf
