#include "runners/schedule/ir/schedule.hpp"

#include <fmt/format.h>

namespace heteroperf {
namespace {

void absorb(Hash128& hash, const Instruction& i) {
  hash.update(i.op).update(i.fused_with_next).update(i.part).update(i.segment);
  hash.update(i.micro_batch).update(i.edge).update(i.peer).update(i.group);
  hash.update(i.buffer).update(i.sequence);
}

void absorb(Hash128& hash, const PipelineGraph& graph) {
  hash.update(graph.ranks).update(graph.micro_batches).update(graph.parts);
  hash.update(graph.segments.size());
  for (const Segment& s : graph.segments) {
    hash.update(s.rank).update(s.weights).update(s.first_micro_batch).update(s.micro_batches);
  }
  hash.update(graph.edges.size());
  for (const Edge& edge : graph.edges) hash.update(edge.from).update(edge.to).update(edge.gradient);
  hash.update(graph.interactions.size());
  for (const Interaction& interaction : graph.interactions) {
    hash.update(interaction.every).update(interaction.members.size());
    for (const int member : interaction.members) hash.update(member);
  }
  hash.update(graph.tied.size());
  for (const std::vector<int>& set : graph.tied) {
    hash.update(set.size());
    for (const int segment : set) hash.update(segment);
  }
}

}  // namespace

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

}  // namespace heteroperf
