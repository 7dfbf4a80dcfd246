#include "suite/sweep/run_outcome.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "results/comparison/run_set.hpp"
#include "results/journal.hpp"
#include "results/run_folder.hpp"
#include "results/suite_record.hpp"
#include "suite/program/exit_code.hpp"

namespace heteroperf {
namespace {

namespace fs = std::filesystem;

ExitCode exit_code_of_complete(const fs::path& folder) {
  const RunSet found = find_runs({folder});
  const bool invalid = std::any_of(found.runs.begin(), found.runs.end(),
                                   [](const RunDigest& run) { return run.severity == "invalid"; });
  return invalid ? ExitCode::invalid_result : ExitCode::ok;
}

/// The journal's own words on an end that was none of a complete run; false where it has none.
bool tell_end(const fs::path& journal, SweepRun& run) {
  const Journal read = read_journal(journal.string());
  const auto* stop = read.last<StopEvent>();
  if (stop == nullptr || stop->status == RunStatus::complete) return false;
  const bool failed = stop->status == RunStatus::failed;
  run.state = failed ? SweepRunState::failed : SweepRunState::interrupted;
  run.exit_code = stop->exit_code;
  if (!stop->reason.empty()) run.reason = stop->reason;
  return true;
}

void tell_incomplete(const fs::path& folder, SweepRun& run) {
  run.state = SweepRunState::interrupted;
  for (const fs::path& journal : journals_in(folder)) {
    try {
      if (tell_end(journal, run)) return;
    } catch (const Error& error) {
      run.state = SweepRunState::failed;
      run.reason = error.what();
      return;
    }
  }
}

}  // namespace

std::string why_unreadable(const fs::path& folder) {
  std::error_code error;
  if (fs::exists(RunFiles{folder}.journal(), error) || !error) return "";
  return fmt::format("it cannot be read ({})", error.message());
}

std::string why_incomplete(const fs::path& folder) {
  if (const std::string why = why_unreadable(folder); !why.empty()) return why;
  if (!fs::exists(folder)) return "it left no folder";
  try {
    const RunSet found = find_runs({folder});
    for (const SkippedEntry& one : found.skipped) return one.reason;
    for (const RunDigest& run : found.runs) {
      if (run.status != "complete") return fmt::format("its record is {}", run.status);
    }
    const auto suite = read_suite_record(folder);
    const std::size_t expected = suite ? suite->plan.workloads.size() : 1;
    if (found.runs.size() == expected) return "";
    return fmt::format("it left {} of {} records", found.runs.size(), expected);
  } catch (const Error& error) {
    return error.what();
  }
}

void tell_outcome(const fs::path& folder, SweepRun& run) {
  run.exit_code.reset();
  run.reason = why_incomplete(folder);
  if (!run.reason.empty()) return tell_incomplete(folder, run);
  run.state = SweepRunState::complete;
  run.exit_code = static_cast<int>(exit_code_of_complete(folder));
}

}  // namespace heteroperf
