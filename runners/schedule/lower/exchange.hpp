#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "runners/schedule/ir/pipeline_graph.hpp"

namespace heteroperf {

/// Sorts the messages that ranks have to send to each other at one point of their programs. A rank
/// goes on once all it sends is taken. A rank that still has something to send takes nothing
/// before, so the last one of a chain of senders has to go first; senders in a circle have to send
/// and receive together, in one group.
///
/// Tarjan's algorithm finds both: it visits the strongly connected components of the graph "sends
/// to" with sinks first, and a component of several ranks is a circle. It runs on an explicit stack
/// of frames, as a chain may hold every rank.
class Exchange {
 public:
  /// A message that a rank has to send.
  struct Parcel {
    int target = 0;
    EdgeId edge;
    std::int32_t slot = 0;  ///< slot at the sender's end
    bool gradient = false;
  };
  struct Sent {
    int source = 0;
    Parcel parcel;
  };

  explicit Exchange(int ranks);

  std::vector<Parcel>& outbox(int rank) { return outbox_[rank]; }
  bool sending(int rank) const { return !outbox_[rank].empty(); }

  /// Empties the outbox of `rank` and of every rank reached from it by what they send where
  /// `joins(source, target)`. Calls send(Sent, grouped) for each parcel in an order in which all
  /// may go, end_group() after each group, and emptied(rank) once all that a rank sends has gone
  /// (it must not fill an outbox).
  template <class Joins, class Send, class EndGroup, class Emptied>
  void flush(int rank, Joins joins, Send send, EndGroup end_group, Emptied emptied);

 private:
  struct Frame {
    int rank;
    std::size_t next;
  };
  void visit(int rank);
  bool component_done(int rank) const { return low_[rank] == order_[rank]; }
  /// Takes the component of `rank` off the stack; fills alone_ and grouped_ with its messages.
  void take_component(int rank);
  void cut_groups();

  std::vector<std::vector<Parcel>> outbox_;  // [rank]
  std::int64_t counter_ = 1, base_ = 1;
  std::vector<std::int64_t> order_, low_;   // [rank]; order_ < base_: not reached
  std::vector<std::int64_t> component_of_;  // [rank]; 0: none yet in this flush
  std::vector<int> stack_, component_;
  std::vector<Frame> frames_;
  std::vector<Sent> alone_, grouped_;
  std::vector<std::size_t> group_ends_;
  std::vector<std::int32_t> messages_of_;  // [rank]: messages in the group at hand
};

template <class Joins, class Send, class EndGroup, class Emptied>
void Exchange::flush(int rank, Joins joins, Send send, EndGroup end_group, Emptied emptied) {
  base_ = counter_;
  visit(rank);
  while (!frames_.empty()) {
    Frame& frame = frames_.back();
    const int source = frame.rank;
    if (frame.next < outbox_[source].size()) {
      const int target = outbox_[source][frame.next++].target;
      if (!sending(target) || !joins(source, target)) continue;
      if (order_[target] < base_) {
        visit(target);
      } else if (component_of_[target] < base_) {
        low_[source] = std::min(low_[source], order_[target]);
      }
      continue;
    }
    frames_.pop_back();
    if (!frames_.empty()) {
      const int caller = frames_.back().rank;
      low_[caller] = std::min(low_[caller], low_[source]);
    }
    if (!component_done(source)) continue;
    take_component(source);
    for (const Sent& sent : alone_) send(sent, false);
    std::size_t begin = 0;
    for (const std::size_t end : group_ends_) {
      for (; begin < end; ++begin) send(grouped_[begin], true);
      end_group();
    }
    for (const int member : component_) outbox_[member].clear();
    for (const int member : component_) emptied(member);
  }
}

}  // namespace heteroperf
