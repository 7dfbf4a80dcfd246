#pragma once

#include <vector>

#include "runners/schedule/ir/schedule_request.hpp"
#include "runners/schedule/ir/schedule.hpp"

namespace heteroperf {

/// The result of a search with its cost.
struct SearchResult {
  Schedule schedule;
  double objective = 0;       ///< makespan or longest span
  double lower_bound = 0;     ///< of the objective
  long long evaluations = 0;  ///< orders timed
  bool proven = false;        ///< reached the lower bound
  bool out_of_time = false;   ///< `most_search_seconds` ended it: another run may differ
};

/// A guard only: what bounds a search is `ScheduleRequest::most_evaluations`.
constexpr double most_search_seconds = 60;

/// Whether a search climbs through smaller memory limits, each from the result of the one before,
/// so that another micro-batch of memory never makes the result worse; or looks at its limit alone.
enum class MemoryLadder { climb, none };

/// The best of `templates` (schedules of the same graph; those above the memory limit are left out)
/// and of what list scheduling and local search find, by `request.objective`, until the lower bound
/// or `request.most_evaluations`. Deterministic for a seed. The search climbs through smaller
/// memory limits and starts each from the one before, so that another micro-batch of memory never
/// makes the result worse. Throws UserError where the limit admits no order.
SearchResult search_schedule(const PipelineGraph& graph, const ScheduleRequest& request,
                             const std::vector<Schedule>& templates = {},
                             MemoryLadder ladder = MemoryLadder::climb);

/// The evaluations that the generators spend on a graph: those asked for, fewer on graphs of more
/// than 25 000 tasks at the default number, so that work stays bounded and results repeatable.
long long affordable_evaluations(const PipelineGraph& graph, const ScheduleRequest& request);

}  // namespace heteroperf
