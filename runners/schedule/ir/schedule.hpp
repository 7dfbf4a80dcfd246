#pragma once

#include <string>
#include <vector>

#include "metrics/base/hash.hpp"
#include "runners/schedule/ir/instruction.hpp"
#include "runners/schedule/ir/pipeline_graph.hpp"

namespace heteroperf {

enum class ScheduleLevel {
  compute,  ///< F, B, W, BW, RECOMPUTE and INTERACT only, as generators emit it
  lowered,  ///< with messages, buffers, groups, reductions and steps, as the executor runs it
};

/// The programs of all ranks for one optimizer step.
struct Schedule {
  std::string name;  ///< of its generator, or of the file it came from
  int chunks = 1;    ///< stages per rank and direction
  ScheduleLevel level = ScheduleLevel::compute;
  PipelineGraph graph;
  std::vector<std::vector<Instruction>> programs;  ///< [rank], in order

  friend bool operator==(const Schedule&, const Schedule&) = default;
};

/// Identity of graph, programs and level (not of names or costs): equal on every machine.
Hash128 schedule_hash(const Schedule& schedule);

std::size_t instruction_count(const Schedule& schedule);

/// "rank 0, 12: SEND_ACT 0.3>1"; any instruction.
std::string place_in_program(const Schedule& schedule, int rank, std::int32_t index);

}  // namespace heteroperf
