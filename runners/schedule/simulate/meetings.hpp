#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "runners/schedule/ir/graph_index.hpp"

// Messages and collectives are where ranks meet. These tables hold, for a simulation of a lowered
// schedule, the places of their members in the programs and, once they are known, their times.

namespace heteroperf {

/// A time that nobody knows yet.
constexpr double unknown_time = std::numeric_limits<double>::infinity();

/// Every message of a schedule. The activation and the gradient of an index's number are messages
/// of their own.
class MessageTable {
 public:
  struct Message {
    std::int32_t send = -1, receive = -1;  ///< in the programs of its source and target
    std::int32_t route = -1;               ///< 2 · edge, + 1 for a gradient
    double issued = unknown_time;          ///< it may start from then on
    double start = unknown_time, end = unknown_time;
  };

  /// Throws UserError with the places of messages that the graph does not have at their rank, that
  /// stand there twice, or that lack their other end.
  MessageTable(const Schedule& schedule, const MessageIndex& index);

  /// The number of the message at this place; −1 where there is none.
  std::int32_t id(int rank, std::int32_t index) const { return ids_[rank][index]; }
  Message& operator[](std::int32_t id) { return messages_[id]; }
  const Message& operator[](std::int32_t id) const { return messages_[id]; }

 private:
  /// Enters one end of a message and gives its number, or −1 where it does not fit.
  std::int32_t enter(const Instruction& instruction, std::int32_t number, std::int32_t index);
  void require_both_ends(const Schedule& schedule, const MessageIndex& index) const;

  std::vector<std::vector<std::int32_t>> ids_;  // [rank][instruction]
  std::vector<Message> messages_;
};

/// Every collective of a schedule. Its members are the ranks whose programs name it; where a
/// program names it several times (for several segments of its rank), only the last place counts.
class CollectiveTable {
 public:
  struct Place {
    std::int32_t rank = -1, index = -1;
  };
  struct Collective {
    double time = 0;               ///< it takes this long
    double start = 0;              ///< arrival of the last member so far
    double end = unknown_time;     ///< known once all are there
    Place latest;                  ///< the member that came last
    std::int32_t missing = 0;      ///< members still to come
    std::int32_t first_place = 0;  ///< into places()
    std::int32_t members = 0;
  };

  /// A collective takes latency · ⌈log2(members)⌉ + the interaction's cost, or `reduction_time`.
  /// Throws UserError for collectives that the graph does not have at their rank.
  CollectiveTable(const Schedule& schedule, const CollectiveIndex& index, double reduction_time);

  Collective& operator[](std::int32_t id) { return collectives_[id]; }
  /// The collectives that a program names, in its order; −1 where a later place counts.
  std::span<const std::int32_t> of(int rank) const { return of_rank_[rank]; }
  /// The members' places, by rank.
  std::span<const Place> places(std::int32_t id) const {
    const Collective& c = collectives_[id];
    return {places_.data() + c.first_place, static_cast<std::size_t>(c.members)};
  }

 private:
  void read(const Schedule& schedule, const CollectiveIndex& index, double reduction_time);
  void gather_members(const Schedule& schedule);

  std::vector<Collective> collectives_;
  std::vector<std::vector<std::int32_t>> of_rank_;
  std::vector<Place> places_;
};

}  // namespace heteroperf
