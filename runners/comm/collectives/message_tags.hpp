#pragma once

#include <string>

#include "metrics/base/error.hpp"

namespace heteroperf {

/// The tags of messages. Messages of one pair of ranks and one tag arrive in the order in which
/// they were sent, so one tag serves a whole stream of messages, and collectives that follow each
/// other do not mix.
///
///   0 ... 3071     users; a Relay takes `relay`
///   3072 ... 3583  collectives made of messages, and the measurement of links
///   3584 ... 4095  the collectives that a transport itself makes of messages (paced): its users
///                  may then run collectives of their own over the same transport
namespace message_tags {
constexpr int relay = 3060;

constexpr int first_reserved = 3072;
constexpr int fold = first_reserved, unfold = first_reserved + 1, doubling = first_reserved + 2;
constexpr int halving = first_reserved + 3, gathering = first_reserved + 4;
constexpr int ring = first_reserved + 5;
constexpr int up = first_reserved + 6, down = first_reserved + 7;
constexpr int bridge = first_reserved + 8, bridge_result = first_reserved + 9;
constexpr int all_to_all = first_reserved + 10, barrier = first_reserved + 11;
constexpr int link_probe = first_reserved + 12;
/// The bridge between clusters of devices: contributions, finished sums, credits.
constexpr int staged = first_reserved + 13, staged_sum = first_reserved + 14;
constexpr int staged_credit = first_reserved + 15;
/// Every relay under way between two ranks has a channel, and a channel has two tags.
constexpr int relay_channels = first_reserved + 32, most_relay_channels = 64;

/// A transport adds this to the tags of its own collectives.
constexpr int inside_transport = 512;
constexpr int first_inside_transport = first_reserved + inside_transport;
}  // namespace message_tags

/// Sets a flag while a collective of a group runs over the group's own messages, whose reserved
/// tags are then allowed. One thread at a time.
class InCollective {
 public:
  explicit InCollective(bool& flag) : flag_(flag), before_(flag) { flag_ = true; }
  ~InCollective() { flag_ = before_; }
  InCollective(const InCollective&) = delete;
  InCollective& operator=(const InCollective&) = delete;

 private:
  bool& flag_;
  bool before_;
};

/// Throws UserError unless the tag of a user's message is below `first_reserved`.
inline void check_users_tag(int tag, int first_reserved) {
  if (tag < first_reserved) return;
  throw UserError("a message with tag " + std::to_string(tag),
                  "tags from " + std::to_string(first_reserved) + " on belong to collectives",
                  "Use 0 to " + std::to_string(message_tags::first_reserved - 1));
}

}  // namespace heteroperf
