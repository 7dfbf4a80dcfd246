#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runners/schedule/ir/instruction.hpp"
#include "runners/schedule/ir/pipeline_graph.hpp"

namespace heteroperf {

/// Dense numbers for what a graph asks to be done, and what each task waits for. A *slot* is a
/// (segment, micro-batch, part); each slot has a forward task and gradient tasks. Slots of a
/// segment are consecutive: micro-batch major, part minor.
class TaskTable {
 public:
  /// The graph must be normalised and outlive the table.
  explicit TaskTable(const PipelineGraph& graph);

  const PipelineGraph& graph() const { return *graph_; }
  std::int32_t slots() const { return first_slot_.back(); }
  /// −1 where the micro-batch does not pass the segment or anything is out of range.
  std::int32_t slot(int segment, int micro_batch, int part) const;
  std::int32_t first_slot(int segment) const { return first_slot_[segment]; }
  int segment_of(std::int32_t slot) const { return segment_of_[slot]; }
  int micro_batch_of(std::int32_t slot) const;
  int part_of(std::int32_t slot) const;

  /// Edges into and out of a segment, as indices into graph().edges.
  std::span<const int> edges_in(int segment) const;
  std::span<const int> edges_out(int segment) const;
  /// No gradient comes back to it: its loss is where gradients start.
  bool is_sink(int segment) const;

  /// Calls visit(slot, edge) for each slot whose forward must end before this one's forward; edge
  /// is −1 for the part before, on the same rank.
  template <class Visit>
  void for_each_forward_input(std::int32_t slot, Visit visit) const;
  /// Calls visit(slot, edge) for each slot whose B or BW must end before this one's B or BW (as
  /// well as its own forward); edge is −1 for the part after, on the same rank.
  template <class Visit>
  void for_each_gradient_input(std::int32_t slot, Visit visit) const;

  /// Interactions a segment is a member of, as indices into graph().interactions.
  std::span<const int> interactions_of(int segment) const;
  /// The first micro-batch of the set that `micro_batch` belongs to.
  int interaction_set(int interaction, int micro_batch) const;

 private:
  struct Lists {  // of indices, per segment
    std::vector<int> offset, values;
    std::span<const int> of(int segment) const;
  };
  template <class Insert>
  static Lists lists(int segments, Insert insert_all);

  const PipelineGraph* graph_;
  std::vector<std::int32_t> first_slot_;  // [segment], and the total
  std::vector<std::int32_t> segment_of_;
  Lists in_, out_, interactions_;
};

template <class Visit>
void TaskTable::for_each_forward_input(std::int32_t slot, Visit visit) const {
  const int part = part_of(slot), micro_batch = micro_batch_of(slot);
  for (const int edge : edges_in(segment_of(slot))) {
    visit(this->slot(graph_->edges[edge].from, micro_batch, part), edge);
  }
  if (part > 0) visit(slot - 1, -1);
}

template <class Visit>
void TaskTable::for_each_gradient_input(std::int32_t slot, Visit visit) const {
  const int part = part_of(slot), micro_batch = micro_batch_of(slot);
  for (const int edge : edges_out(segment_of(slot))) {
    if (!graph_->edges[edge].gradient) continue;
    visit(this->slot(graph_->edges[edge].to, micro_batch, part), edge);
  }
  if (part + 1 < graph_->parts) visit(slot + 1, -1);
}

}  // namespace heteroperf
