#pragma once

#include <string>

#include "results/report/report_page.hpp"
#include "results/report/report_run.hpp"

namespace heteroperf {

/// The sections of one run's part, in the order of the page. `id` begins the ids of their charts.
/// A section whose data a run does not have says why in a sentence.

ReportSection headline_section(const ReportRun& run, const std::string& id);
ReportSection progress_section(const ReportRun& run, const std::string& id);
ReportSection step_time_section(const ReportRun& run, const std::string& id);
ReportSection time_split_section(const ReportRun& run, const std::string& id);
ReportSection pipeline_section(const ReportRun& run, const std::string& id);
ReportSection straggler_section(const ReportRun& run, const std::string& id);
ReportSection roofline_section(const ReportRun& run, const std::string& id);
ReportSection mix_section(const ReportRun& run, const std::string& id);
ReportSection memory_section(const ReportRun& run, const std::string& id);
ReportSection trials_section(const ReportRun& run, const std::string& id);
ReportSection environment_section(const ReportRun& run, const std::string& id);

/// All of them.
ReportPart run_part(const ReportRun& run, const std::string& id);

/// Seconds from the journal's first line.
double since_start_s(const Journal& journal, std::int64_t t_ns);

}  // namespace heteroperf
