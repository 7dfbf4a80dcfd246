#pragma once

#include <cstdint>
#include <vector>

#include "runners/schedule/ir/schedule.hpp"
#include "runners/schedule/lower/buffer_pool.hpp"
#include "runners/schedule/lower/exchange.hpp"

namespace heteroperf {

/// Writes the programs of a lowered schedule, in an order that others decide: gives instructions
/// their buffers and messages their places in their channels.
class ProgramWriter {
 public:
  /// Of the lowered form of `source`; all must outlive the writer.
  ProgramWriter(const Schedule& source, const TaskTable& tasks, const MessageIndex& messages,
                const CollectiveIndex& collectives);

  const ValueIndex& values() const { return buffers_.values(); }
  bool filled(std::int64_t value) const { return buffers_.filled(value); }

  void copy(int rank, const Instruction& instruction);
  /// What this F reads, where it is a source's.
  void load(int rank, const Instruction& forward);
  void run(int rank, Instruction compute);
  /// Both ends; the receiving one comes back.
  Instruction transfer(const Exchange::Sent& sent, std::int32_t group);
  void loss(int rank, std::int32_t slot);
  /// FREE of what is used up.
  void free_used(int rank);
  void meet(int rank, Instruction interact, std::int32_t collective);
  /// A reduction, on the rank of the segment.
  void reduce(Op op, int segment);
  void step(int rank);

  Schedule take() { return std::move(result_); }

 private:
  std::int32_t slot_of(const Instruction& i) const {
    return tasks_.slot(i.segment, i.micro_batch, i.part);
  }
  std::int32_t output_buffer(int rank, const Instruction& compute);
  std::int32_t gradients_of(int rank, const Instruction& interact) const;

  const PipelineGraph& graph_;
  const TaskTable& tasks_;
  const MessageIndex& messages_;
  BufferPool buffers_;
  std::vector<std::int32_t> sent_;  // [channel]
  Schedule result_;
};

}  // namespace heteroperf
