#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "metrics/base/error.hpp"
#include "results/journal/journal.hpp"

namespace heteroperf {

/// Paths of the files of one run.
struct RunFiles {
  std::filesystem::path folder;
  std::filesystem::path journal() const { return folder / "journal.jsonl"; }
  std::filesystem::path record() const { return folder / "record.json"; }
  std::filesystem::path samples() const { return folder / "samples.h5"; }
  std::filesystem::path config() const { return folder / "config.json"; }
  std::filesystem::path plan() const { return folder / "plan.json"; }
  std::filesystem::path environment() const { return folder / "environment.json"; }
  std::filesystem::path suite() const { return folder / "suite.json"; }
};

/// Names of a new run. `id` is 8 hexadecimal digits from the operating system's random source.
struct RunName {
  std::string created_utc;  ///< "2026-01-01T10:15:00Z"
  std::string run_id;       ///< "20260101T101500Z-llm-1f0c9a77"
};
RunName make_run_name(const std::string& workload);

/// Creates `folder` (and its parents) for a new run and checks that it can be written and synced.
/// An existing folder must be empty. Throws UserError when the path is in the way or not writable,
/// SystemError when the disk refuses; both name the `flag` that gives another.
RunFiles create_run_folder(const std::filesystem::path& folder, const char* flag = "--out");

/// Points `<parent of folder>/latest` at `folder`, atomically. Something at that place that is no
/// symbolic link is left alone; false then, or where links are not supported.
bool point_latest_at(const std::filesystem::path& folder);

/// The folder a file lies in: "." for one without a folder in its path.
std::filesystem::path home_of(const std::filesystem::path& file);

/// The folder of that name in `home`, which may not be there. Documents name such parts, and those
/// of strangers must not lead anywhere else: throws UserError where `name` is empty, "." or "..",
/// has a slash, or is a link there.
std::filesystem::path part_of(const std::filesystem::path& home, const std::string& name);

/// The journal of a run in this folder; of a suite those of its workloads, by name.
std::vector<std::filesystem::path> journals_in(const std::filesystem::path& folder);

/// There is nothing at `path`; names the nearest of what lies beside it, as most such paths have a
/// typing mistake.
UserError no_such_run(const std::filesystem::path& path);

/// The run or suite folder that `path` means: a folder, a link to one, or a file inside one. Throws
/// UserError when there is neither journal, record nor suite.json.
RunFiles open_run_folder(const std::filesystem::path& path);

/// read_regular_file(), which for the missing record of an unfinished run names `recover`.
std::string read_run_file(const std::filesystem::path& path);

/// The end of every run: reads the journal back, writes companion files, record.json and samples.h5
/// (where HDF5 is built in; else a warning in the answer). Close or flush the writer first.
struct FinishedRun {
  std::string record;                 ///< text of record.json
  std::vector<std::string> warnings;  ///< "samples.h5 is absent (…)"
};
FinishedRun finish_run(const RunFiles& files);

/// Rebuilds record.json, samples.h5 and the companion files from the journal of an interrupted run;
/// of a suite, those of each workload and then suite.json, also where that is gone and the journals
/// name the suite.
///
/// A torn last line stays where it is, does not count, and the record names its length and the hash
/// of the whole file, so that `verify` passes afterwards. Of a journal with another damaged line
/// the lines before it are kept; the whole file stays beside it as damaged-1.jsonl, with a warning.
/// Throws Error{verification} where a suite.json has other workloads than its journals name or a
/// workload is not the suite's own.
FinishedRun recover(const std::filesystem::path& path);

}  // namespace heteroperf
