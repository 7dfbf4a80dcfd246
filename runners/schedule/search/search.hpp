#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "metrics/base/name_table.hpp"
#include "runners/schedule/ir/placement.hpp"
#include "runners/schedule/ir/schedule.hpp"

namespace heteroperf {

/// The time that a schedule is to make small: the end of the last computation, or the largest of
/// the ranks' spans from first start to last end.
enum class Objective { makespan, span };
constexpr std::array<const char*, 2> value_names(Objective) { return {"makespan", "span"}; }

/// The order for a schedule, as a generator or the search takes it.
struct ScheduleRequest {
  int ranks = 1, micro_batches = 1;
  std::optional<int> chunks;           ///< absent: the generator's own number
  int parts = 1;                       ///< sequence splits
  StageCosts costs;                    ///< [rank]
  std::optional<double> memory_limit;  ///< per rank, in activations of a micro-batch
  Objective objective = Objective::makespan;
  /// Where it is given, it is scheduled instead of a chain, and has its own `ranks`,
  /// `micro_batches` and costs.
  std::optional<PipelineGraph> graph;
  std::uint64_t seed = 1;
  std::int64_t most_evaluations = 16000;  ///< bounds a search
};

/// A way to lay a graph's branches on ranks, with the best order that was found for it.
struct PlacedCandidate {
  std::string placement;
  double objective = 0;    ///< makespan or longest span
  double lower_bound = 0;  ///< no order on this placement has a smaller objective
};

/// The result of a search with its cost.
struct SearchResult {
  Schedule schedule;
  double objective = 0;       ///< makespan or longest span
  double lower_bound = 0;     ///< no order has a smaller objective
  long long evaluations = 0;  ///< orders timed
  bool proven = false;        ///< reached the lower bound
  bool out_of_time = false;   ///< `most_search_seconds` ended it: another run may differ
  /// The placements that were compared, the best one first; empty where the graph had ranks.
  std::vector<PlacedCandidate> placements;
};

/// A guard only: `ScheduleRequest::most_evaluations` bounds a search, and keeps it repeatable.
constexpr double most_search_seconds = 60;

/// The memory limits that a search works under. To climb is to pass through smaller limits, each
/// from the result of the one before, so that another micro-batch of memory never makes the result
/// worse; without it, the search looks at its limit alone.
enum class MemoryLadder { climb, none };

/// The best of `templates` (schedules of the same graph; those above the memory limit are left out)
/// and of the orders that list scheduling and local search find, by `request.objective`, until the
/// lower bound or `request.most_evaluations`. The result is the same for one seed. Throws UserError
/// where the limit admits no order.
SearchResult search_schedule(const PipelineGraph& graph, const ScheduleRequest& request,
                             const std::vector<Schedule>& templates = {},
                             MemoryLadder ladder = MemoryLadder::climb);

/// Takes each activation of a normalised graph as a share of the room that its rank has, and gives
/// it the unit of a memory limit; returns the limit that keeps every rank within its room. A rank
/// with less room than the least order takes counts as if it had that. Nothing where no activation
/// takes any.
std::optional<double> limit_to_room(PipelineGraph& graph);

/// The evaluations that the generators spend on a graph: those asked for, fewer on graphs of more
/// than 25 000 tasks at the default number, so that work stays bounded and results repeatable.
long long affordable_evaluations(const PipelineGraph& graph, const ScheduleRequest& request);

}  // namespace heteroperf
