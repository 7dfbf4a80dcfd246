#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "metrics/base/hash.hpp"
#include "metrics/base/name_table.hpp"
#include "runners/schedule/ir/pipeline_graph.hpp"

namespace heteroperf {

/// An operation of a rank. `forward` to `recompute` are computations. `idle` takes no time; it is
/// kept only so that an imported table prints again as it was.
enum class Op : std::uint8_t {
  idle,
  load,             ///< LOAD: reads the data of a segment without inputs
  forward,          ///< F
  input_gradient,   ///< B
  weight_gradient,  ///< W
  backward,         ///< BW: B and W at once; the input's gradient leaves at its end
  recompute,        ///< RECOMPUTE: a second forward
  loss,             ///< LOSS
  send_act,         ///< SEND_ACT: sends an activation
  recv_act,         ///< RECV_ACT
  send_grad,        ///< SEND_GRAD: sends the gradient of an activation
  recv_grad,        ///< RECV_GRAD
  interact,         ///< INTERACT: a collective between branches
  reduce_grad,      ///< REDUCE_GRAD: sums a weight's gradients over its copies and replicas
  reduce_tied,      ///< REDUCE_TIED: sums the gradients of tied weights of different segments
  opt_step,         ///< OPT_STEP
  free,             ///< FREE: gives a buffer back
};
constexpr int op_count = 17;

/// The name in programs and messages: "F", "SEND_ACT", …; it is empty for idle.
const char* to_string(Op op);

constexpr bool is_compute(Op op) { return op >= Op::forward && op <= Op::recompute; }
/// B, W and BW are gradients.
constexpr bool is_gradient(Op op) { return op >= Op::input_gradient && op <= Op::backward; }
/// B and BW make the gradient that the segments before wait for.
constexpr bool makes_input_gradient(Op op) {
  return op == Op::input_gradient || op == Op::backward;
}
constexpr bool is_send(Op op) { return op == Op::send_act || op == Op::send_grad; }
constexpr bool is_receive(Op op) { return op == Op::recv_act || op == Op::recv_grad; }
constexpr bool is_message(Op op) { return is_send(op) || is_receive(op); }
constexpr bool carries_gradient(Op op) { return op == Op::send_grad || op == Op::recv_grad; }

/// One line of a rank's program. A field that the operation does not use is −1 (none), `part` is 0.
struct Instruction {
  Op op = Op::idle;
  /// This instruction and the next run as one: they start when both may start, and end together.
  bool fused_with_next = false;
  std::uint16_t part = 0;  ///< part of the sequence
  SegmentId segment = -1;
  MicroBatchId micro_batch = -1;  ///< an INTERACT names the first one of its set
  EdgeId edge = -1;               ///< the edge of a message; see interaction() too
  std::int32_t peer = -1;         ///< the other rank of a message
  std::int32_t group = -1;        ///< neighbouring messages with one number are issued together
  std::int32_t buffer = -1;       ///< slot of this rank's memory in which the value lies
  std::int32_t sequence = -1;     ///< a message's place in its channel (source, target, kind)

  /// The place of an INTERACT's interaction in PipelineGraph::interactions.
  int interaction() const { return edge.value(); }

  friend bool operator==(const Instruction&, const Instruction&) = default;
};
static_assert(sizeof(Instruction) == 32);
/// The most messages of one group at a rank; libraries that issue groups bound them.
constexpr int most_group_messages = 256;

/// A computation (or LOAD, LOSS) of a micro-batch; the other fields are not set.
Instruction compute(Op op, SegmentId segment, MicroBatchId micro_batch, int part = 0);

/// The time of a compute instruction alone; 0 for others.
double compute_time(const PipelineGraph& graph, const Instruction& instruction);

/// Writes an instruction for people and messages: "F 3.7" (segment.micro-batch), "BW 3.7/1" (part
/// 1), "SEND_ACT 3.7>1" (to rank 1), "RECV_GRAD 3.7<1" (from rank 1), "REDUCE_GRAD 3", "OPT_STEP".
std::string to_text(const Instruction& instruction);

enum class ScheduleLevel {
  compute,  ///< F, B, W, BW, RECOMPUTE and INTERACT only, as generators emit it
  lowered,  ///< with messages, buffers, groups, reductions and steps, as the executor runs it
};
constexpr std::array<const char*, 2> value_names(ScheduleLevel) { return {"compute", "lowered"}; }

/// The programs of all ranks for one optimizer step.
struct Schedule {
  std::string name;  ///< its generator's name, or the name in the file it came from
  int chunks = 1;    ///< stages per rank and direction
  ScheduleLevel level = ScheduleLevel::compute;
  PipelineGraph graph;
  std::vector<std::vector<Instruction>> programs;  ///< [rank], in order

  friend bool operator==(const Schedule&, const Schedule&) = default;
};

/// The identity of graph, programs and level (names and costs do not count). It is equal on every
/// machine.
Hash128 schedule_hash(const Schedule& schedule);

/// The number of instructions on all ranks.
std::size_t instruction_count(const Schedule& schedule);

/// Names an instruction by its place, as "rank 0, 12: SEND_ACT 0.3>1". It takes any instruction,
/// even one whose operation does not exist.
std::string place_in_program(const Schedule& schedule, int rank, std::int32_t index);

/// The change of a rank's memory by `op` of a segment: an F holds its activation, B leaves the part
/// that W needs, W frees that, BW all. A memory limit bounds this count.
constexpr double memory_change(const Segment& segment, Op op) {
  if (op == Op::forward) return segment.activation;
  if (op == Op::backward) return -segment.activation;
  if (op == Op::input_gradient) return (segment.weight_part - 1) * segment.activation;
  return op == Op::weight_gradient ? -segment.weight_part * segment.activation : 0;
}

/// The most that each rank holds at once, in a rank's activations of one micro-batch. It depends on
/// the order of the programs alone, not on times.
struct MemoryPeaks {
  std::vector<double> activations;  ///< [rank]; an activation is freed at W or BW only
  std::vector<double> memory;       ///< [rank]; counted by memory_change()
};
MemoryPeaks memory_peaks(const Schedule& schedule);

}  // namespace heteroperf
