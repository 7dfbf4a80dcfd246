#include "runners/schedule/ir/memory.hpp"

#include <algorithm>

namespace heteroperf {
namespace {

constexpr double activation_change(Op op) {
  if (op == Op::forward) return 1;
  return op == Op::weight_gradient || op == Op::backward ? -1 : 0;
}

template <class Change>
double peak(const PipelineGraph& graph, const std::vector<Instruction>& program, Change change) {
  double held = 0, most = 0;
  for (const Instruction& instruction : program) {
    const double activations = change(instruction.op);
    if (activations == 0) continue;
    held += activations * graph.segments[instruction.segment].activation / graph.parts;
    most = std::max(most, held);
  }
  return most;
}

}  // namespace

MemoryPeaks memory_peaks(const Schedule& schedule) {
  MemoryPeaks peaks;
  for (const std::vector<Instruction>& program : schedule.programs) {
    peaks.activations.push_back(peak(schedule.graph, program, activation_change));
    peaks.memory.push_back(peak(schedule.graph, program, memory_change));
  }
  return peaks;
}

}  // namespace heteroperf
