#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "runners/schedule/ir/pipeline_graph.hpp"

namespace heteroperf {

enum class Objective { makespan, span };
const char* to_string(Objective objective);
/// Throws UserError naming the nearest one.
Objective parse_objective(const std::string& name);

/// What is asked of a generator.
struct ScheduleRequest {
  int ranks = 1, micro_batches = 1;
  std::optional<int> chunks;           ///< absent: the generator's own
  int parts = 1;                       ///< sequence splits
  StageCosts costs;                    ///< [rank]
  std::optional<double> memory_limit;  ///< per rank, in activations of a micro-batch
  Objective objective = Objective::makespan;
  /// Given: schedule this instead of a chain (`ranks`, `micro_batches`, `costs` are then its own).
  std::optional<PipelineGraph> graph;
  std::uint64_t seed = 1;
  std::int64_t most_evaluations = 16000;  ///< of a search
};

}  // namespace heteroperf
