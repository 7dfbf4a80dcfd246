#pragma once

namespace heteroperf {

/// Tags of messages that belong to collectives; users' are below. Messages of one pair and tag are
/// sent and received in the same order on both sides, so one tag serves a whole stream, and calls
/// in a row do not mix.
namespace message_tags {
constexpr int first = 3072;
constexpr int fold = first, unfold = first + 1, doubling = first + 2;
constexpr int halving = first + 3, gathering = first + 4;
constexpr int ring = first + 5;
constexpr int up = first + 6, down = first + 7;
constexpr int bridge = first + 8, bridge_result = first + 9;
constexpr int all_to_all = first + 10, barrier = first + 11;
}  // namespace message_tags

}  // namespace heteroperf
