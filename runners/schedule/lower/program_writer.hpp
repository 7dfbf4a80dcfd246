#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "runners/schedule/ir/graph_index.hpp"
#include "runners/schedule/lower/exchange.hpp"

namespace heteroperf {

/// Gives the values of a schedule under construction their buffers, and tells which are free again.
/// The buffers of a rank are small numbers that are used again.
class BufferPool {
 public:
  explicit BufferPool(const GraphIndex& numbers);

  /// Gives a buffer on `rank` to a value that is used `uses` times until it is free.
  std::int32_t fill(int rank, std::int64_t value, std::int32_t uses);
  /// The buffer of any value but an INTERACT's.
  std::int32_t of(std::int64_t value) const { return entries_[value].buffer; }
  bool filled(std::int64_t value) const { return entries_[value].buffer >= 0; }
  void use(int rank, std::int64_t value);

  /// Uses of the output of a slot's F, and of the gradient that its B (`split`) or BW makes.
  std::int32_t output_uses(std::int32_t slot) const { return output_uses_[segment(slot)]; }
  std::int32_t gradient_uses(std::int32_t slot, bool split) const {
    return gradient_uses_[segment(slot)] + (split ? 1 : 0);
  }
  /// Notes that the last gradient (W or BW) of a slot is done; `split` says that B and W were
  /// apart.
  void finish(int rank, std::int32_t slot, bool split);

  /// Calls free(buffer) for the buffers of a rank that were used up since the last call. After that
  /// they may be given again.
  template <class Free>
  void drain(int rank, Free free) {
    for (const std::int32_t buffer : done_[rank]) {
      free(buffer);
      free_[rank].push_back(buffer);
    }
    done_[rank].clear();
  }

 private:
  struct Entry {
    std::int32_t buffer = -1, uses = 0;
  };
  /// An INTERACT's value lies on several ranks and has an entry for each.
  Entry& entry(int rank, std::int64_t value);
  SegmentId segment(std::int32_t slot) const { return numbers_.tasks.segment_of(slot); }

  const GraphIndex& numbers_;
  std::vector<Entry> entries_;             // [value], then [INTERACT, member]
  std::vector<std::int64_t> first_entry_;  // [INTERACT]
  IdVector<SegmentId, std::int32_t> output_uses_, gradient_uses_;
  std::vector<std::int32_t> buffers_;                   // [rank]: how many there are
  std::vector<std::vector<std::int32_t>> free_, done_;  // [rank]
};

/// Writes the programs of a lowered schedule in an order that Lowering decides: gives instructions
/// their buffers and messages their places in their channels.
class ProgramWriter {
 public:
  /// Writes the lowered form of `source`; both must outlive the writer.
  ProgramWriter(const Schedule& source, const GraphIndex& numbers);

  bool filled(std::int64_t value) const { return buffers_.filled(value); }

  void copy(int rank, const Instruction& instruction);
  /// Writes the LOAD of what an F reads, where its segment is a source.
  void load(int rank, const Instruction& forward);
  void run(int rank, Instruction compute);
  /// Writes both ends of a message; the result is the receiving one.
  Instruction transfer(const Exchange::Sent& sent, std::int32_t group);
  void loss(int rank, std::int32_t slot);
  /// Writes FREE of what is used up.
  void free_used(int rank);
  /// Writes an INTERACT.
  void meet(int rank, Instruction interact, std::int32_t collective);
  /// Writes a reduction, on the rank of the segment.
  void reduce(Op op, SegmentId segment);
  void step(int rank);

  Schedule take() { return std::move(result_); }

 private:
  std::int32_t output_buffer(int rank, const Instruction& compute);

  const PipelineGraph& graph_;
  const GraphIndex& numbers_;
  BufferPool buffers_;
  std::vector<std::int32_t> sent_;  // [channel]: messages so far
  Schedule result_;
};

}  // namespace heteroperf
