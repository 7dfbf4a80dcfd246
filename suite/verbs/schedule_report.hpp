#pragma once

#include <optional>
#include <string>
#include <vector>

#include "results/text/document.hpp"
#include "runners/schedule/check/validator.hpp"
#include "runners/schedule/ir/schedule.hpp"
#include "runners/schedule/search/search.hpp"
#include "runners/schedule/simulate/report.hpp"
#include "runners/schedule/simulate/simulator.hpp"

namespace heteroperf {

/// The effort of finding a schedule.
struct SearchEffort {
  long long evaluations = 0;
  double seconds = 0;        ///< wall time
  bool proven = false;       ///< nothing can be better
  bool out_of_time = false;  ///< another run may find another schedule
};

/// One schedule, checked and timed.
struct ScheduleResult {
  Schedule schedule;  ///< as generated or imported
  Schedule lowered;
  NetworkModel model = NetworkModel::latency;
  Timeline timeline;  ///< times of `lowered`
  ScheduleReport report;
  ScheduleChecks checks;  ///< results for `lowered`
  std::optional<double> memory_limit;
  std::optional<SearchEffort> search;  ///< with `auto` only
  /// With `auto` on a graph without ranks: the one of `schedule` first.
  std::vector<PlacedCandidate> placements;
};

/// Checks, lowers where it is not, and times. Throws UserError with the reasons and the
/// counter-example for a schedule that is incomplete, mismatched or cannot end.
ScheduleResult evaluate_schedule(Schedule schedule, const SimulationOptions& options,
                                 std::optional<double> memory_limit);

/// A schedule that `all` leaves out.
struct SkippedSchedule {
  std::string name, reason;
};

/// Everything but the programs.
Document schedule_document(const ScheduleResult& result);
/// The native form of the schedule with the document's keys in it.
std::string schedule_json_text(const ScheduleResult& result);
Document schedules_document(const std::vector<ScheduleResult>& results,
                            const std::vector<SkippedSchedule>& skipped);
/// The answer of `simulate`. `wall_s`: of the simulation.
Document simulation_document(const ScheduleResult& result, double wall_s);

/// Adds what a simulation of any kind tells of the pipeline: its bubbles, the table of its ranks,
/// and the chain of instructions that makes the step as long as it is; `place` says what runs them,
/// `of` whose bubbles they are.
void add_pipeline(Document& document, const ScheduleReport& report, const Schedule& schedule,
                  const char* place, Table ranks, const std::string& of = {});

}  // namespace heteroperf
