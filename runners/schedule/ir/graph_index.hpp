#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "runners/schedule/ir/grouped_lists.hpp"
#include "runners/schedule/ir/schedule.hpp"

// Dense numbers for everything that a graph asks for. Checks, lowering and clocks keep what they
// know in plain vectors; these classes say which element belongs to which instruction. A *slot* is
// a (segment, micro-batch, part), a *message* crosses an edge, a *collective* joins several ranks,
// a *value* lies in a buffer. GraphIndex, at the end, holds all four kinds of one graph.

namespace heteroperf {

/// The numbers of the slots of a graph, and what the tasks of each slot wait for. Every slot has a
/// forward task and gradient tasks. The slots of a segment are consecutive: micro-batch major, part
/// minor. Simulators, checks and searches ask for slots at every instruction, so what they ask is
/// in line.
class TaskTable {
 public:
  /// The graph must be normalised and outlive the table.
  explicit TaskTable(const PipelineGraph& graph);

  const PipelineGraph& graph() const { return *graph_; }
  std::int32_t slots() const { return first_slot_.back(); }
  /// The result is −1 where the micro-batch does not pass the segment or anything is out of range.
  std::int32_t slot(SegmentId segment, MicroBatchId micro_batch, int part) const {
    if (!graph_->segments.contains(segment) || part < 0 || part >= graph_->parts) return -1;
    if (!graph_->passes(segment, micro_batch)) return -1;
    const int index = micro_batch - graph_->segments[segment].first_micro_batch;
    return first_slot_[segment] + index * graph_->parts + part;
  }
  std::int32_t slot(const Instruction& i) const { return slot(i.segment, i.micro_batch, i.part); }
  std::int32_t first_slot(SegmentId segment) const { return first_slot_[segment]; }
  SegmentId segment_of(std::int32_t slot) const { return segment_of_[slot]; }
  MicroBatchId micro_batch_of(std::int32_t slot) const {
    return graph_->segments[segment_of_[slot]].first_micro_batch +
           within_segment(slot) / graph_->parts;
  }
  int part_of(std::int32_t slot) const { return within_segment(slot) % graph_->parts; }
  /// The instruction that does `op` for a slot.
  Instruction instruction(Op op, std::int32_t slot) const;

  /// The edges into and out of a segment.
  std::span<const EdgeId> edges_in(SegmentId segment) const { return in_.of(segment.value()); }
  std::span<const EdgeId> edges_out(SegmentId segment) const { return out_.of(segment.value()); }
  /// A source has no inputs, so its forward starts with loaded data.
  bool is_source(SegmentId segment) const { return edges_in(segment).empty(); }
  /// No gradient comes back to a sink, so gradients start from its loss.
  bool is_sink(SegmentId segment) const;

  /// Calls visit(slot, edge) for each slot whose forward must end before this one's forward; edge
  /// is none for the part before, on the same rank.
  template <class Visit>
  void for_each_forward_input(std::int32_t slot, Visit visit) const;
  /// Calls visit(slot, edge) for each slot whose B or BW must end before this one's B or BW (as
  /// well as its own forward); edge is none for the part after, on the same rank.
  template <class Visit>
  void for_each_gradient_input(std::int32_t slot, Visit visit) const;

  /// Visits as above the inputs of an F, B or BW; W and RECOMPUTE have none on other ranks.
  template <class Visit>
  void for_each_input(Op op, std::int32_t slot, Visit visit) const {
    if (op == Op::forward) for_each_forward_input(slot, visit);
    if (makes_input_gradient(op)) for_each_gradient_input(slot, visit);
  }

  /// The interactions that a segment is a member of, as indices into graph().interactions.
  std::span<const int> interactions_of(SegmentId segment) const {
    return interactions_.of(segment.value());
  }
  /// The first micro-batch of the set that `micro_batch` belongs to.
  MicroBatchId interaction_set(int interaction, MicroBatchId micro_batch) const;
  /// Calls visit(slot) for each slot of this rank that an INTERACT with the set of `micro_batch`
  /// waits for: all its members there, the set's micro-batches and their parts.
  template <class Visit>
  void for_each_member_slot(int rank, int interaction, MicroBatchId micro_batch, Visit visit) const;

 private:
  std::int32_t within_segment(std::int32_t slot) const {
    return slot - first_slot_[segment_of_[slot]];
  }

  const PipelineGraph* graph_;
  IdVector<SegmentId, std::int32_t> first_slot_;  // and the total
  std::vector<SegmentId> segment_of_;             // [slot]
  GroupedLists<EdgeId> in_, out_;                 // by segment
  GroupedLists<int> interactions_;                // by segment
};

/// The numbers of the messages of a graph: one per (edge, micro-batch, part), shared by the
/// activation and its gradient. Edges within a rank have numbers too, but send nothing. A *channel*
/// is (source rank, target rank, kind); the messages of a channel arrive in the order of their
/// sends.
class MessageIndex {
 public:
  /// The table must outlive the index. Throws UserError beyond 2^29 messages.
  explicit MessageIndex(const TaskTable& tasks);

  std::int32_t size() const { return first_.back(); }
  /// The message of an edge, by the slot at either end.
  std::int32_t of(EdgeId edge, std::int32_t slot) const {
    return first_[edge] + slot - tasks_->first_slot(tasks_->segment_of(slot));
  }
  /// The message of any instruction, however wrong. The result is −1 unless the graph has this
  /// message and this end of it lies on `rank`.
  std::int32_t find(const Instruction& instruction, int rank) const;

  int rank_from(EdgeId edge) const { return rank_[tasks_->graph().edges[edge].from]; }
  int rank_to(EdgeId edge) const { return rank_[tasks_->graph().edges[edge].to]; }
  bool crosses(EdgeId edge) const { return pair_[edge] >= 0; }
  /// The number of the channel of a crossing edge's activations or gradients.
  int channel(EdgeId edge, bool gradient) const { return 2 * pair_[edge] + (gradient ? 1 : 0); }
  int channels() const { return channels_; }

 private:
  const TaskTable* tasks_;
  IdVector<EdgeId, std::int32_t> first_;  // and the total
  IdVector<SegmentId, int> rank_;
  IdVector<EdgeId, int> pair_;  // number of its two ranks; −1: stays on its rank
  int channels_ = 0;
};

/// The numbers of the collectives of a graph: REDUCE_GRAD of each weights, then REDUCE_TIED of each
/// tied set (its programs name it once for each of its segments), then INTERACT of each set of
/// micro-batches.
class CollectiveIndex {
 public:
  /// The table must outlive the index.
  explicit CollectiveIndex(const TaskTable& tasks);

  static constexpr bool is_collective(Op op) {
    return op == Op::interact || op == Op::reduce_grad || op == Op::reduce_tied;
  }

  std::int32_t size() const { return size_; }
  /// Distinct weights are numbered from 0; the number is that of their REDUCE_GRAD too.
  int weights() const { return weights_; }
  int weights_of(SegmentId segment) const { return weights_of_[segment]; }
  /// The first segment with these weights on each of their ranks, by rank. It stands for the others
  /// there: a rank reduces weights once.
  std::span<const SegmentId> first_copies(int weights) const { return first_copies_[weights]; }
  std::int32_t first_interaction() const { return first_set_.front(); }
  std::int32_t interaction(int interaction, MicroBatchId micro_batch) const;
  /// The set of micro-batches that an INTERACT's number stands for.
  struct Set {
    int interaction;
    MicroBatchId first_micro_batch;
  };
  Set set_of(std::int32_t collective) const;
  /// The ranks that take part, ascending.
  std::span<const int> ranks(std::int32_t collective) const;

  /// Follows one rank's program, as REDUCE_TIED names the sets of its segment in their order.
  class Reader {
   public:
    Reader(const CollectiveIndex& index, int rank);
    /// The collective of the next instruction that is one, however wrong. The result is −1 unless
    /// the graph has this collective and the rank takes part.
    std::int32_t find(const Instruction& instruction);

   private:
    std::int32_t find_interaction(const Instruction& instruction) const;
    const CollectiveIndex* index_;
    int rank_;
    IdVector<SegmentId, std::size_t> tied_seen_;  // where there are tied sets
  };

 private:
  const TaskTable* tasks_;
  int weights_ = 0;
  std::int32_t size_ = 0;
  IdVector<SegmentId, int> weights_of_;
  std::vector<std::vector<SegmentId>> first_copies_;  // [weights]
  std::vector<std::int32_t> first_set_;               // [interaction], and the total
  std::vector<std::vector<int>> ranks_;               // [weights, tied set, interaction]
  IdVector<SegmentId, std::vector<int>> tied_sets_;
};

/// The numbers of the values that lie in a rank's buffers. Each lives until its last use:
///  - the data of a source, from its LOAD to the last gradient (W or BW) of the slot;
///  - a received activation or gradient, and a LOSS, to the last gradient of the slot;
///  - the output of an F (with what its gradient keeps), to the last gradient of the slot and of
///    every consumer on the rank;
///  - the gradient that a B or BW makes of its inputs, to its sends, to the last gradient of every
///    producer on the rank, and after a B to the W of the slot;
///  - the result of an INTERACT, to the last gradient of every member's slots on the rank.
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
  /// The value that a message brings.
  std::int64_t received(std::int32_t message, bool gradient) const {
    return 4 * slots_ + (gradient ? messages_->size() : 0) + message;
  }
  /// The result of an INTERACT; every member rank has one of its own.
  std::int64_t interaction(std::int32_t collective) const {
    return first_interaction() + collective - collectives_->first_interaction();
  }
  std::int64_t first_interaction() const {
    return 4 * slots_ + 2 * std::int64_t{messages_->size()};
  }

  /// Visits the values that an F reads.
  template <class Visit>
  void for_each_input(std::int32_t slot, Visit visit) const;
  /// Visits the values that a B, W or BW reads beside for_each_input(), its output and the gradient
  /// that its own B made.
  template <class Visit>
  void for_each_gradient_input(std::int32_t slot, Visit visit) const;
  /// The number of edges by which the gradient of this segment's input leaves.
  int gradient_edges_in(SegmentId segment) const;

 private:
  const TaskTable* tasks_;
  const MessageIndex* messages_;
  const CollectiveIndex* collectives_;
  std::int64_t slots_;
};

/// All numbers of one graph, which must be normalised and outlive the index.
struct GraphIndex {
  explicit GraphIndex(const PipelineGraph& graph)
      : tasks(graph), messages(tasks), collectives(tasks), values(tasks, messages, collectives) {}
  GraphIndex(const GraphIndex&) = delete;  // its parts point to each other
  GraphIndex& operator=(const GraphIndex&) = delete;

  TaskTable tasks;
  MessageIndex messages;
  CollectiveIndex collectives;
  ValueIndex values;
};

template <class Visit>
void TaskTable::for_each_forward_input(std::int32_t slot, Visit visit) const {
  const int part = part_of(slot);
  const MicroBatchId micro_batch = micro_batch_of(slot);
  for (const EdgeId edge : edges_in(segment_of(slot))) {
    visit(this->slot(graph_->edges[edge].from, micro_batch, part), edge);
  }
  if (part > 0) visit(slot - 1, EdgeId::none());
}

template <class Visit>
void TaskTable::for_each_gradient_input(std::int32_t slot, Visit visit) const {
  const int part = part_of(slot);
  const MicroBatchId micro_batch = micro_batch_of(slot);
  for (const EdgeId edge : edges_out(segment_of(slot))) {
    if (!graph_->edges[edge].gradient) continue;
    visit(this->slot(graph_->edges[edge].to, micro_batch, part), edge);
  }
  if (part + 1 < graph_->parts) visit(slot + 1, EdgeId::none());
}

template <class Visit>
void TaskTable::for_each_member_slot(int rank, int interaction, MicroBatchId micro_batch,
                                     Visit visit) const {
  const Interaction& x = graph_->interactions[interaction];
  for (const SegmentId member : x.members) {
    if (graph_->segments[member].rank != rank) continue;
    for (MicroBatchId k = micro_batch; k - micro_batch < x.every && graph_->passes(member, k);
         ++k) {
      for (int part = 0; part < graph_->parts; ++part) visit(slot(member, k, part));
    }
  }
}

template <class Visit>
void ValueIndex::for_each_input(std::int32_t slot, Visit visit) const {
  if (tasks_->is_source(tasks_->segment_of(slot))) visit(data(slot));
  tasks_->for_each_forward_input(slot, [&](std::int32_t producer, EdgeId edge) {
    if (edge == EdgeId::none()) return;
    const bool crosses = messages_->crosses(edge);
    visit(crosses ? received(messages_->of(edge, slot), false) : output(producer));
  });
}

template <class Visit>
void ValueIndex::for_each_gradient_input(std::int32_t slot, Visit visit) const {
  bool sink = true;
  tasks_->for_each_gradient_input(slot, [&](std::int32_t consumer, EdgeId edge) {
    if (edge == EdgeId::none()) return;
    sink = false;
    const bool crosses = messages_->crosses(edge);
    visit(crosses ? received(messages_->of(edge, slot), true) : gradient(consumer));
  });
  if (sink) visit(loss(slot));
  for (const int x : tasks_->interactions_of(tasks_->segment_of(slot))) {
    visit(interaction(collectives_->interaction(x, tasks_->micro_batch_of(slot))));
  }
}

}  // namespace heteroperf
