#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "runners/schedule/schedule.hpp"

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

/// Where a schedule has its stages.
enum class StageOrder {
  looped,   ///< stage s on rank s mod p
  zig_zag,  ///< down the ranks and up again
  two_way,  ///< two copies: stage s on rank s going down, on rank p−1−s going up
  any,      ///< as the request's graph says
};

/// A published schedule, or the search.
struct Generator {
  const char* name;
  const char* summary;  ///< one line, with the source
  StageOrder order;
  /// Throws UserError where the definition does not allow the request.
  Schedule (*make)(const ScheduleRequest& request);
};
std::span<const Generator> generators();
/// Throws UserError naming the nearest names.
const Generator& find_generator(std::string_view name);

}  // namespace heteroperf
