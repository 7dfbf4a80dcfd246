// The hash of a schedule is its identity: two programs that generate the same instructions for the
// same graph agree in it on every machine. Costs and names do not change what is run, so they are
// left out.

#include "runners/schedule/ir/schedule.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace heteroperf {
namespace {

constexpr std::array<const char*, op_count> op_names{
    "",          "LOAD",        "F",           "B",        "W",         "BW",
    "RECOMPUTE", "LOSS",        "SEND_ACT",    "RECV_ACT", "SEND_GRAD", "RECV_GRAD",
    "INTERACT",  "REDUCE_GRAD", "REDUCE_TIED", "OPT_STEP", "FREE"};

void absorb(Hash128& hash, const Instruction& i) {
  hash.update(i.op).update(i.fused_with_next).update(i.part).update(i.segment.value());
  hash.update(i.micro_batch.value()).update(i.edge.value()).update(i.peer).update(i.group);
  hash.update(i.buffer).update(i.sequence);
}

void absorb(Hash128& hash, const PipelineGraph& graph) {
  hash.update(graph.ranks).update(graph.micro_batches).update(graph.parts);
  hash.update(graph.segments.size());
  for (const Segment& s : graph.segments) {
    hash.update(s.rank)
        .update(s.weights)
        .update(s.first_micro_batch.value())
        .update(s.micro_batches);
  }
  hash.update(graph.edges.size());
  for (const Edge& edge : graph.edges) {
    hash.update(edge.from.value()).update(edge.to.value()).update(edge.gradient);
  }
  hash.update(graph.interactions.size());
  for (const Interaction& interaction : graph.interactions) {
    hash.update(interaction.every).update(interaction.members.size());
    for (const SegmentId member : interaction.members) hash.update(member.value());
  }
  hash.update(graph.tied.size());
  for (const std::vector<SegmentId>& set : graph.tied) {
    hash.update(set.size());
    for (const SegmentId segment : set) hash.update(segment.value());
  }
}

/// The change of held activations where a B frees nothing.
constexpr double activation_change(const Segment& segment, Op op) {
  if (op == Op::forward) return segment.activation;
  return op == Op::weight_gradient || op == Op::backward ? -segment.activation : 0;
}

/// The most that one rank holds while its program runs in order.
template <class Change>
double peak(const PipelineGraph& graph, const std::vector<Instruction>& program, Change change) {
  double held = 0, most = 0;
  for (const Instruction& instruction : program) {
    if (!graph.segments.contains(instruction.segment)) continue;
    held += change(graph.segments[instruction.segment], instruction.op) / graph.parts;
    most = std::max(most, held);
  }
  return most;
}

}  // namespace

const char* to_string(Op op) { return op_names[static_cast<std::size_t>(op)]; }

Instruction compute(Op op, SegmentId segment, MicroBatchId micro_batch, int part) {
  return {.op = op,
          .part = static_cast<std::uint16_t>(part),
          .segment = segment,
          .micro_batch = micro_batch};
}

double compute_time(const PipelineGraph& graph, const Instruction& i) {
  if (!is_compute(i.op)) return 0;
  if (!is_gradient(i.op)) return graph.forward(i.segment, i.micro_batch);
  if (i.op == Op::weight_gradient) return graph.weight_gradient(i.segment, i.micro_batch);
  const double input = graph.input_gradient(i.segment, i.micro_batch);
  return i.op == Op::backward ? input + graph.weight_gradient(i.segment, i.micro_batch) : input;
}

std::string to_text(const Instruction& i) {
  if (i.op == Op::idle) return "idle";
  std::string text = to_string(i.op);
  if (i.segment >= 0) text += fmt::format(" {}", i.segment.value());
  if (i.micro_batch >= 0) text += fmt::format(".{}", i.micro_batch.value());
  if (i.part > 0) text += fmt::format("/{}", i.part);
  if (is_send(i.op)) text += fmt::format(">{}", i.peer);
  if (is_receive(i.op)) text += fmt::format("<{}", i.peer);
  return text;
}

Hash128 schedule_hash(const Schedule& schedule) {
  Hash128 hash("heteroperf-schedule");
  hash.update(schedule.level);
  absorb(hash, schedule.graph);
  for (const std::vector<Instruction>& program : schedule.programs) {
    hash.update(program.size());
    for (const Instruction& instruction : program) absorb(hash, instruction);
  }
  return hash;
}

std::size_t instruction_count(const Schedule& schedule) {
  std::size_t count = 0;
  for (const std::vector<Instruction>& program : schedule.programs) count += program.size();
  return count;
}

std::string place_in_program(const Schedule& schedule, int rank, std::int32_t index) {
  const Instruction& i = schedule.programs[rank][index];
  const bool known = static_cast<int>(i.op) < op_count;
  return fmt::format("rank {}, {}: {}", rank, index,
                     known ? to_text(i) : fmt::format("operation {}", static_cast<int>(i.op)));
}

MemoryPeaks memory_peaks(const Schedule& schedule) {
  MemoryPeaks peaks;
  for (const std::vector<Instruction>& program : schedule.programs) {
    peaks.activations.push_back(peak(schedule.graph, program, activation_change));
    peaks.memory.push_back(peak(schedule.graph, program, memory_change));
  }
  return peaks;
}

}  // namespace heteroperf
