#pragma once

#include <cstdint>

#include "runners/schedule/ir/collective_index.hpp"
#include "runners/schedule/ir/message_index.hpp"

namespace heteroperf {

/// Dense numbers for the values that lie in a rank's buffers, with who uses which.
///  - data of a source: from its LOAD to the last gradient (W or BW) of the slot;
///  - a received activation or gradient, and a LOSS: to the last gradient of the slot;
///  - the output of an F (with what its gradient keeps): to the last gradient of the slot and of
///    every consumer on the rank;
///  - the gradient a B or BW makes of its inputs: to its sends, the last gradient of every producer
///    on the rank, and of a B to the W of the slot;
///  - the result of an INTERACT: to the last gradient of every member's slots on the rank.
class ValueIndex {
 public:
  ValueIndex(const TaskTable& tasks, const MessageIndex& messages,
             const CollectiveIndex& collectives)
      : tasks_(&tasks), messages_(&messages), collectives_(&collectives), slots_(tasks.slots()) {}

  std::int64_t size() const { return interaction(collectives_->size()); }
  std::int64_t output(std::int32_t slot) const { return slot; }
  std::int64_t gradient(std::int32_t slot) const { return slots_ + slot; }
  std::int64_t data(std::int32_t slot) const { return 2 * slots_ + slot; }
  std::int64_t loss(std::int32_t slot) const { return 3 * slots_ + slot; }
  std::int64_t activation(std::int32_t message) const { return 4 * slots_ + message; }
  std::int64_t received_gradient(std::int32_t message) const {
    return 4 * slots_ + messages_->size() + message;
  }
  /// One on each member rank.
  std::int64_t interaction(std::int32_t collective) const {
    return first_interaction() + collective - collectives_->first_interaction();
  }
  std::int64_t first_interaction() const {
    return 4 * slots_ + 2 * std::int64_t{messages_->size()};
  }

  /// What an F reads.
  template <class Visit>
  void for_each_input(std::int32_t slot, Visit visit) const {
    const int segment = tasks_->segment_of(slot);
    if (tasks_->edges_in(segment).empty()) visit(data(slot));
    tasks_->for_each_forward_input(slot, [&](std::int32_t other, int edge) {
      if (edge < 0) return;
      const bool crosses = messages_->crosses(edge);
      visit(crosses ? activation(messages_->of(edge, slot)) : output(other));
    });
  }

  /// What a B, W or BW reads beside for_each_input(), its output and what its own B made.
  template <class Visit>
  void for_each_gradient_input(std::int32_t slot, Visit visit) const {
    bool sink = true;
    tasks_->for_each_gradient_input(slot, [&](std::int32_t other, int edge) {
      if (edge < 0) return;
      sink = false;
      const bool crosses = messages_->crosses(edge);
      visit(crosses ? received_gradient(messages_->of(edge, slot)) : gradient(other));
    });
    if (sink) visit(loss(slot));
    const int segment = tasks_->segment_of(slot);
    for (const int x : tasks_->interactions_of(segment)) {
      visit(interaction(collectives_->interaction(x, tasks_->micro_batch_of(slot))));
    }
  }

  /// Edges that a gradient of this segment's input leaves by.
  int gradient_edges_in(int segment) const {
    int count = 0;
    for (const int edge : tasks_->edges_in(segment)) {
      count += tasks_->graph().edges[edge].gradient ? 1 : 0;
    }
    return count;
  }

 private:
  const TaskTable* tasks_;
  const MessageIndex* messages_;
  const CollectiveIndex* collectives_;
  std::int64_t slots_;
};

}  // namespace heteroperf
