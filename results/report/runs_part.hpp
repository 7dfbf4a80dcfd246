#pragma once

#include <filesystem>
#include <vector>

#include "results/comparison/run_set.hpp"
#include "results/report/report_page.hpp"

namespace heteroperf {

/// The sources that a report is made of.
struct ReportSources {
  RunSet records;                              ///< finished runs, by date
  std::vector<std::filesystem::path> folders;  ///< all runs with a journal, oldest first
  bool sweep = false;  ///< all of one sweep: its runs differ by design, in no order of time
};

/// Looks into run folders, suites and folders of them as find_runs() does; unfinished runs count.
/// Throws UserError where a path is missing, and where there is no run at all.
ReportSources report_sources(const std::vector<std::filesystem::path>& paths);

/// The view of several runs together: a table of them, scaling, mixed against homogeneous, trend,
/// and what changed around them.
ReportPart runs_part(const ReportSources& sources);

/// Runs over rank counts, same work (strong) and same work per rank (weak). No charts where no two
/// runs differ in their ranks alone.
ReportSection scaling_section(const RunSet& runs);

}  // namespace heteroperf
