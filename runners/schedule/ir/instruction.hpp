#pragma once

#include <cstdint>
#include <string>

namespace heteroperf {

/// What a rank does. `forward` … `recompute` are compute; `idle` takes no time and is only kept so
/// that an imported table prints again as it was.
enum class Op : std::uint8_t {
  idle,
  load,             ///< LOAD: a source segment's data
  forward,          ///< F
  input_gradient,   ///< B
  weight_gradient,  ///< W
  backward,         ///< BW: B and W at once; the input's gradient leaves at its end
  recompute,        ///< RECOMPUTE: a second forward
  loss,             ///< LOSS
  send_act,         ///< SEND_ACT
  recv_act,         ///< RECV_ACT
  send_grad,        ///< SEND_GRAD
  recv_grad,        ///< RECV_GRAD
  interact,         ///< INTERACT: a collective between branches
  reduce_grad,      ///< REDUCE_GRAD: sums a weight's gradients over its copies and replicas
  reduce_tied,      ///< REDUCE_TIED: sums the gradients of tied weights of different segments
  opt_step,         ///< OPT_STEP
  free,             ///< FREE: gives a buffer back
};
constexpr int op_count = 17;

/// "F", "SEND_ACT", …; "" for idle.
const char* to_string(Op op);

constexpr bool is_compute(Op op) { return op >= Op::forward && op <= Op::recompute; }
constexpr bool is_send(Op op) { return op == Op::send_act || op == Op::send_grad; }
constexpr bool is_receive(Op op) { return op == Op::recv_act || op == Op::recv_grad; }
/// B, W or BW.
constexpr bool is_gradient(Op op) { return op >= Op::input_gradient && op <= Op::backward; }

/// One line of a rank's program. Fields an operation does not use are −1 (`part`: 0).
struct Instruction {
  Op op = Op::idle;
  /// This and the next instruction run as one: start when both may, end together.
  bool fused_with_next = false;
  std::uint16_t part = 0;         ///< of the sequence
  std::int32_t segment = -1;      ///< index into PipelineGraph::segments
  std::int32_t micro_batch = -1;  ///< for INTERACT the first one of its set
  std::int32_t edge = -1;         ///< of a message: index into PipelineGraph::edges; of an
                                  ///< INTERACT: index into PipelineGraph::interactions
  std::int32_t peer = -1;         ///< of a message: the other rank
  std::int32_t group = -1;        ///< neighbouring messages with one number are issued together
  std::int32_t buffer = -1;       ///< slot of this rank the value lies in
  std::int32_t sequence = -1;     ///< of a message: its place in its channel (source, target, kind)

  friend bool operator==(const Instruction&, const Instruction&) = default;
};
static_assert(sizeof(Instruction) == 32);

Instruction compute(Op op, int segment, int micro_batch, int part = 0);

/// For people and messages: "F 3.7" (segment.micro-batch), "BW 3.7/1" (part 1), "SEND_ACT 3.7>1"
/// (to rank 1), "RECV_GRAD 3.7<1" (from rank 1), "REDUCE_GRAD 3", "OPT_STEP".
std::string to_text(const Instruction& instruction);

}  // namespace heteroperf
