#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "metrics/rate.hpp"
#include "results/journal/journal.hpp"
#include "results/record/ruleset.hpp"
#include "results/record/run_summary.hpp"
#include "results/report/report_page.hpp"

namespace heteroperf {

/// One instruction of a step on one rank.
struct StepSpan {
  std::string kind;  ///< "forward", "message", …
  std::string label;
  double from_s = 0, to_s = 0;
};
/// The work of one rank in a step.
struct StepLane {
  std::string name;
  std::vector<StepSpan> spans;
};
/// One optimizer step of all ranks on one clock.
struct StepTimeline {
  std::string source;  ///< where it is from, for the reader
  std::vector<StepLane> lanes;
  std::string missing;  ///< why there are no lanes
};

/// The standing of the stored record to the journal beside it.
enum class RecordState { matches, differs, absent };

/// One run as its report needs it.
struct ReportRun {
  std::filesystem::path folder;
  Journal journal;
  RunSummary summary;
  Validity validity;
  std::string record;  ///< made from the journal, whatever is stored
  RecordState stored = RecordState::matches;
  /// The first contradiction among its lines (verify.hpp); empty where they agree.
  std::string contradiction;
  StepTimeline measured, predicted;
};

/// Reads the journal of a run folder, finished or not. Throws UserError without one, JournalError
/// on a damaged one.
ReportRun read_report_run(const std::filesystem::path& folder);

/// The spans of a trace as `simulate --trace` writes it, or of the last step of one as `run
/// --trace` does, a lane per rank without what overlaps with it; why there are none is said in
/// `missing`. A second of the trace counts as `seconds_scale` seconds.
StepTimeline step_timeline(const std::string& trace, const std::string& source,
                           double seconds_scale);
/// The trace file, and the cluster, that the run's configuration names; empty without one.
std::string configured_trace(const Journal& journal);
std::string configured_cluster(const Journal& journal);

/// The sections of one run's part, in the order of the page. `id` begins the ids of their charts.
/// A section whose data a run does not have says why in a sentence.

/// Notices of what keeps the numbers from being believed, then scores, quality, and reasons. An
/// invalid run has no scores.
ReportSection headline_section(const ReportRun& run);
/// The rate, then losses and evaluations; for a search the trials' quality in place of losses.
ReportSection progress_section(const ReportRun& run, const std::string& id);
/// The histogram is of the steady window, or of all steps where there is none.
ReportSection step_time_section(const ReportRun& run, const std::string& id);
/// Seconds per step from the ranks' own reports; the split of the whole window where there are
/// none.
ReportSection time_split_section(const ReportRun& run, const std::string& id);
/// Only of a model of several components.
ReportSection component_section(const ReportRun& run, const std::string& id);
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
ReportSection trials_section(const ReportRun& run);
/// Every value of the record; takes the journal's first line to be `start`.
ReportSection environment_section(const ReportRun& run);

/// All of them.
ReportPart run_part(const ReportRun& run, const std::string& id);

/// Seconds from the journal's first line.
double since_start_s(const Journal& journal, std::int64_t t_ns);
/// Everything from the first step's start to the last one's end; nothing without steps.
std::optional<TimeWindow> all_steps(const Journal& journal);

}  // namespace heteroperf
