#pragma once

#include <string>

#include "results/report/report_run.hpp"

namespace heteroperf {

/// Puts one step as the simulator times the run's plan.json, and one as the run's own trace has it,
/// into the run; where there is none, why. A trace is the run's own when it says so (TraceOrigin):
/// measured, and of this run_id. It is trace.json in the run's folder, or the file that its
/// configuration names.
///
/// `trace` stands in for that file, or, if it is simulated, for the simulator's step. Throws
/// UserError where it is no trace of this run.
void add_timelines(ReportRun& run, const std::string& trace);

}  // namespace heteroperf
