// A sweep's folder tells more than its sweep.json, which can be lost: it holds folders named 001-…,
// each with a journal whose first line names the run's place in the sweep, and with records once
// the run has ended. Both the session that goes on and the recovery look at these alone to know
// what is complete.
#include "suite/sweep/sweep_folder.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "metrics/base/error.hpp"
#include "results/comparison/run_set.hpp"
#include "results/journal/journal.hpp"
#include "results/record/run_folder.hpp"
#include "results/record/suite_record.hpp"
#include "suite/program/exit_code.hpp"

namespace heteroperf {
namespace {

namespace fs = std::filesystem;

/// True for "002-ranks=2-seed=1".
bool is_named_as_run(const fs::path& folder) {
  constexpr std::size_t fewest_digits = 3, most_digits = 5;
  const std::string name = folder.filename().string();
  const std::size_t digits = name.find_first_not_of("0123456789");
  return digits != std::string::npos && name[digits] == '-' && digits >= fewest_digits &&
         digits <= most_digits;
}

/// Reads the place from the first journal whose first line can be read; the workloads of a suite
/// name the same one.
SweptRun swept_run_in(const fs::path& folder) {
  SweptRun run;
  run.folder = folder.filename().string();
  const std::string unreadable = why_unreadable(folder);
  run.silence = unreadable.empty() ? "it has no journal" : unreadable;
  for (const fs::path& journal : journals_in(folder)) {
    try {
      // Damage further on does not make a place unknown.
      run.place = read_journal_start(journal.string()).sweep;
      run.silence = run.place ? ""
                              : "its journal names no sweep: no sweep started it, or an older "
                                "program wrote it";
      break;
    } catch (const Error& error) {
      run.silence = error.what();
    }
  }
  return run;
}

/// True for a folder that has runs in it and is none itself.
bool looks_like_sweep(const fs::path& folder) {
  const RunFiles files{folder};
  std::error_code error;
  for (const fs::path& file : {files.journal(), files.record(), files.suite()}) {
    if (fs::exists(file, error)) return false;
  }
  const fs::directory_iterator entries(folder, error);
  return std::any_of(begin(entries), end(entries), [](const fs::directory_entry& entry) {
    std::error_code unreadable;
    return is_named_as_run(entry.path()) && entry.is_directory(unreadable);
  });
}

/// Takes over the words of the first journal that tells an end that was none of a complete run. A
/// run whose journals tell none was interrupted; one with a journal that cannot be read failed.
void tell_incomplete(const fs::path& folder, SweepRun& run) {
  run.state = SweepRunState::interrupted;
  for (const fs::path& file : journals_in(folder)) {
    try {
      const Journal journal = read_journal(file.string());
      const auto* stop = journal.last<StopEvent>();
      if (stop == nullptr || stop->status == RunStatus::complete) continue;
      if (stop->status == RunStatus::failed) run.state = SweepRunState::failed;
      run.exit_code = stop->exit_code;
      if (!stop->reason.empty()) run.reason = stop->reason;
    } catch (const Error& error) {
      run.state = SweepRunState::failed;
      run.reason = error.what();
    }
    return;
  }
}

}  // namespace

FolderLock::FolderLock(const fs::path& folder, const std::string& way_out)
    : descriptor_(open(folder.c_str(), O_RDONLY | O_DIRECTORY)) {
  // Where the file system has no locks, two processes in one folder are the user's to avoid.
  if (descriptor_ < 0 || flock(descriptor_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
  close(descriptor_);
  throw UserError("another process works on the sweep in " + folder.string(), "", way_out);
}

FolderLock::~FolderLock() {
  if (descriptor_ >= 0) close(descriptor_);
}

std::vector<SweptRun> swept_runs(const fs::path& folder) {
  std::vector<SweptRun> runs;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const bool run = is_named_as_run(entry.path()) && entry.is_directory(error);
    if (run) runs.push_back(swept_run_in(entry.path()));
  }
  std::sort(runs.begin(), runs.end(),
            [](const SweptRun& a, const SweptRun& b) { return a.folder < b.folder; });
  return runs;
}

std::optional<fs::path> damaged_sweep_of(const fs::path& path) {
  const bool file = path.filename() == sweep_file({}).filename();
  const fs::path folder = file ? home_of(path) : path;
  std::error_code error;
  if (!fs::is_directory(folder, error)) return std::nullopt;
  if (fs::exists(sweep_file(folder), error) || looks_like_sweep(folder)) return folder;
  return std::nullopt;
}

std::string free_name_aside(const fs::path& sweep, const std::string& name) {
  fs::create_directories(sweep / "aside");
  for (int i = 1;; ++i) {
    const std::string path = fmt::format("aside/{}-{}", name, i);
    if (!fs::exists(sweep / path)) return path;
  }
}

std::string why_unreadable(const fs::path& folder) {
  std::error_code error;
  if (fs::exists(RunFiles{folder}.journal(), error) || !error) return "";
  return fmt::format("it cannot be read ({})", error.message());
}

std::string why_incomplete(const fs::path& folder) {
  if (const std::string why = why_unreadable(folder); !why.empty()) return why;
  if (!fs::exists(folder)) return "it left no folder";
  try {
    const RunSet set = find_runs({folder});
    if (!set.skipped.empty()) return set.skipped.front().reason;
    for (const RunDigest& run : set.runs) {
      if (run.status != "complete") return fmt::format("its record is {}", run.status);
    }
    const auto suite = read_suite_record(folder);
    const std::size_t expected = suite ? suite->plan.workloads.size() : 1;
    if (set.runs.size() == expected) return "";
    return fmt::format("it left {} of {} records", set.runs.size(), expected);
  } catch (const Error& error) {
    return error.what();
  }
}

void tell_outcome(const fs::path& folder, SweepRun& run) {
  run.exit_code.reset();
  run.reason = why_incomplete(folder);
  if (!run.reason.empty()) return tell_incomplete(folder, run);
  run.state = SweepRunState::complete;
  const std::vector<RunDigest> runs = find_runs({folder}).runs;
  const bool invalid = std::any_of(runs.begin(), runs.end(), [](const RunDigest& complete) {
    return complete.severity == "invalid";
  });
  run.exit_code = static_cast<int>(invalid ? ExitCode::invalid_result : ExitCode::ok);
}

}  // namespace heteroperf
