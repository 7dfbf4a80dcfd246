#pragma once

namespace heteroperf {

/// Who uses which tags. Messages of one pair and tag are sent and received in the same order on
/// both sides, so one tag serves a whole stream, and calls in a row do not mix.
///
///   0 ... 3071     users'; a relay is one of them, with `relay` and the two after it unless told
///   3072 ... 3583  collectives made of messages, and the measuring of links
///   3584 ... 4095  the same collectives inside a transport that makes its own of messages (paced),
///                  so that it can carry another group's collectives at the same time
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
/// Of devices, by way of their hosts: contributions, sums that are handed out, credits.
constexpr int staged = first_reserved + 13, staged_sum = first_reserved + 14;
constexpr int staged_credit = first_reserved + 15;
/// Two for each message of devices under way between two ranks.
constexpr int relay_channels = first_reserved + 32, most_relay_channels = 64;

/// Added to the tags of a transport's own collectives.
constexpr int inside_transport = 512;
constexpr int first_inside_transport = first_reserved + inside_transport;
}  // namespace message_tags

/// While a group's own collective runs, its messages need no check. One thread at a time.
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
void check_users_tag(int tag, int first_reserved);

}  // namespace heteroperf
