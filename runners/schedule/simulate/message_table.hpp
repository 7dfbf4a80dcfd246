#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "runners/schedule/ir/message_index.hpp"
#include "runners/schedule/ir/schedule.hpp"

namespace heteroperf {

/// Every message of a lowered schedule with the places of its two ends and, once a simulation knows
/// them, its times. Activation and gradient of an index's number are messages of their own.
class MessageTable {
 public:
  static constexpr double unknown = std::numeric_limits<double>::infinity();

  struct Message {
    std::int32_t send = -1, receive = -1;  ///< in the programs of its source and target
    std::int32_t route = -1;               ///< 2 · edge, + 1 for a gradient
    double issued = unknown;               ///< may start from then on
    double start = unknown, end = unknown;
  };

  /// Throws UserError with the places of messages that the graph does not have at their rank, that
  /// stand there twice, or that lack their other end.
  MessageTable(const Schedule& schedule, const MessageIndex& index);

  /// Of the instruction at this place; −1: no message.
  std::int32_t id(int rank, std::int32_t index) const { return ids_[rank][index]; }
  Message& operator[](std::int32_t id) { return messages_[id]; }
  const Message& operator[](std::int32_t id) const { return messages_[id]; }

 private:
  /// −1: it does not fit.
  std::int32_t enter(const Instruction& instruction, std::int32_t number, std::int32_t index);
  void require_both_ends(const Schedule& schedule, const MessageIndex& index) const;

  std::vector<std::vector<std::int32_t>> ids_;  // [rank][instruction]
  std::vector<Message> messages_;
};

}  // namespace heteroperf
