#pragma once

#include <optional>
#include <string>

#include "metrics/rate.hpp"
#include "results/report/report_page.hpp"
#include "results/report/report_run.hpp"

namespace heteroperf {

/// The sections of one run's part, in the order of the page. `id` begins the ids of their charts.
/// A section whose data a run does not have says why in a sentence.

/// Notices of what keeps the numbers from being believed, then scores, quality, and reasons. An
/// invalid run has no scores.
ReportSection headline_section(const ReportRun& run, const std::string& id);
/// The rate, then losses and evaluations; for a search the trials' quality in place of losses.
ReportSection progress_section(const ReportRun& run, const std::string& id);
/// The histogram is of the steady window, or of all steps where there is none.
ReportSection step_time_section(const ReportRun& run, const std::string& id);
/// Seconds per step from the ranks' own reports; the split of the whole window where there are
/// none.
ReportSection time_split_section(const ReportRun& run, const std::string& id);
/// Uses `measured` and `predicted` of the run, which the caller has filled in. A search has
/// neither.
ReportSection pipeline_section(const ReportRun& run, const std::string& id);
/// Ranks against their peers, or for a search the share of time that groups spent in steps.
ReportSection straggler_section(const ReportRun& run, const std::string& id);
/// Only of a valid run on real devices whose peak was measured.
ReportSection roofline_section(const ReportRun& run, const std::string& id);
/// Needs the baselines in the journal; the planned chart is there without a measured one.
ReportSection mix_section(const ReportRun& run, const std::string& id);
ReportSection memory_section(const ReportRun& run, const std::string& id);
/// The first 200 trials of a search, each in its last state.
ReportSection trials_section(const ReportRun& run, const std::string& id);
/// Every value of the record; takes the journal's first line to be `start`.
ReportSection environment_section(const ReportRun& run, const std::string& id);

/// All of them.
ReportPart run_part(const ReportRun& run, const std::string& id);

/// Seconds from the journal's first line.
double since_start_s(const Journal& journal, std::int64_t t_ns);
/// Everything from the first step's start to the last one's end; nothing without steps.
std::optional<TimeWindow> all_steps(const Journal& journal);

}  // namespace heteroperf
