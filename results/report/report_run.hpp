#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "results/journal/journal.hpp"
#include "results/record/ruleset.hpp"
#include "results/record/run_summary.hpp"

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

}  // namespace heteroperf
