#include "runners/schedule/ir/instruction.hpp"

#include <fmt/format.h>

#include <array>

namespace heteroperf {
namespace {

constexpr std::array<const char*, op_count> op_names{
    "",          "LOAD",        "F",           "B",        "W",         "BW",
    "RECOMPUTE", "LOSS",        "SEND_ACT",    "RECV_ACT", "SEND_GRAD", "RECV_GRAD",
    "INTERACT",  "REDUCE_GRAD", "REDUCE_TIED", "OPT_STEP", "FREE"};

}  // namespace

const char* to_string(Op op) { return op_names[static_cast<std::size_t>(op)]; }

Instruction compute(Op op, int segment, int micro_batch, int part) {
  Instruction instruction;
  instruction.op = op;
  instruction.segment = segment;
  instruction.micro_batch = micro_batch;
  instruction.part = static_cast<std::uint16_t>(part);
  return instruction;
}

std::string to_text(const Instruction& i) {
  if (i.op == Op::idle) return "idle";
  std::string text = to_string(i.op);
  if (i.segment >= 0) text += fmt::format(" {}", i.segment);
  if (i.micro_batch >= 0) text += fmt::format(".{}", i.micro_batch);
  if (i.part > 0) text += fmt::format("/{}", i.part);
  if (is_send(i.op)) text += fmt::format(">{}", i.peer);
  if (is_receive(i.op)) text += fmt::format("<{}", i.peer);
  return text;
}

}  // namespace heteroperf
