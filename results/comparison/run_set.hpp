#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "metrics/base/error.hpp"
#include "results/comparison/run_digest.hpp"

namespace heteroperf {

/// A file or folder that was no usable record, and why.
struct SkippedEntry {
  std::filesystem::path path;
  std::string reason;
  ErrorKind kind = ErrorKind::usage;  ///< an error of this kind is thrown where the entry is needed
  std::vector<Problem> problems;      ///< the error has them

  SkippedEntry(std::filesystem::path place, std::string why);
  SkippedEntry(std::filesystem::path place, std::string why, const Error& error)
      : path(std::move(place)),
        reason(std::move(why)),
        kind(error.kind()),
        problems(error.problems()) {}
};

/// Every record below some paths, by date, each run once.
struct RunSet {
  std::vector<RunDigest> runs;
  /// Records that cannot be read, other records of a run, suites that their runs contradict.
  std::vector<SkippedEntry> skipped;
  std::size_t foreign = 0;  ///< other files and folders that were passed over
  std::vector<std::filesystem::path> barren = {};  ///< paths that were given and hold no record
  std::vector<SkippedEntry> suites = {};  ///< suites without an OPS that could be ranked, and why
};

/// Finds records in run folders, suites, folders of those (four levels) and the files of a saved
/// baseline. Links inside a folder are not followed: `latest` is a run that is there already. A
/// run's own subfolders (its baselines, checkpoints) are not looked into. Of several records with
/// one run_id the one counts that its journal confirms; equal copies of it are left out, others are
/// skipped with the reason. Throws UserError where a path is missing.
RunSet find_runs(const std::vector<std::filesystem::path>& paths);

/// Throws UserError where nothing of a run was found: for each path that holds none, and for a file
/// that was named and is no record.
void require_some(const RunSet& run_set, const std::vector<std::filesystem::path>& paths);

/// Holds every run to its journal (record_doubt.hpp): those that it does not confirm are skipped,
/// with the reason.
void set_aside_doubtful(RunSet& run_set);

/// Finds runs that somebody will rely on, so that nothing may be left out: throws Error of its kind
/// where something was skipped, UserError where a path holds no record, Error{verification} where a
/// record was edited, and Error{invalid_result} where one is invalid by the rules.
RunSet require_runs(const std::vector<std::filesystem::path>& paths);

/// Every field in which the runs' keys differ, as problems of Error{not_comparable}; `a` and `b`
/// name the sides. Also within a side.
void require_comparable(const RunSet& a, const RunSet& b, const std::string& name_a,
                        const std::string& name_b);
/// Throws UserError that names every run that is on both sides.
void require_disjoint(const RunSet& a, const RunSet& b, const std::string& name_a,
                      const std::string& name_b);

}  // namespace heteroperf
