#pragma once

#include <string>

#include "results/report/report_run.hpp"

namespace heteroperf {

/// Puts one step as the simulator times the run's plan.json, and one as its trace has it, into the
/// run; where there is none, why. `trace`: the file, else the one that the run's configuration
/// names, else trace.json in its folder.
void add_timelines(ReportRun& run, const std::string& trace);

}  // namespace heteroperf
