#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "results/sweep/sweep_index.hpp"

namespace heteroperf {

/// Held while a process works on a sweep's folder. The runs inherit it: one that outlives a killed
/// sweep still writes there, and takes cores. Throws UserError with the suggestion `way_out` where
/// another process has it.
class FolderLock {
 public:
  FolderLock(const std::filesystem::path& folder, const std::string& way_out);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int descriptor_;
};

/// A folder that is named as a run of a sweep, and the place that its journal names.
struct SweptRun {
  std::string folder;  ///< in the sweep's own
  std::optional<SweepPlace> place;
  std::string silence;  ///< why there is no place; empty where there is one
};

/// Reads the first line of a journal in each folder of `folder` that is named "001-…", in the order
/// of their names.
std::vector<SweptRun> swept_runs(const std::filesystem::path& folder);

/// The sweep that a path means though its sweep.json be damaged or gone: a folder with a sweep.json
/// of whatever content, or with folders that are named as a sweep's runs and no run of its own; or
/// the sweep.json of such a folder.
std::optional<std::filesystem::path> damaged_sweep_of(const std::filesystem::path& path);

/// Makes `aside/` in a sweep and gives the path in the sweep at which `name` may be put aside:
/// "aside/NAME-1", or the next number that is free.
std::string free_name_aside(const std::filesystem::path& sweep, const std::string& name);

/// Says why a folder cannot be looked into; empty where it can, or is not there.
std::string why_unreadable(const std::filesystem::path& folder);

/// Says why a run's folder holds no complete result; empty where it does.
std::string why_incomplete(const std::filesystem::path& folder);

/// Sets state, exit code and reason of a run as its folder alone tells them: from its records, or,
/// where they are not complete, from the last line of its journal. A run that nobody ended counts
/// as interrupted.
void tell_outcome(const std::filesystem::path& folder, SweepRun& run);

struct RecoveredSweep {
  std::string done;  ///< says in a line what was rebuilt
  std::vector<std::string> warnings;
};

/// Rebuilds what is missing of a sweep: records of its runs from their journals, and sweep.json
/// from its runs where it is gone, cannot be read, or is not as it was written. The old file is
/// kept in `aside/`. A sound one keeps what it says, keys of a newer program too; only runs that
/// turn out complete are noted.
///
/// Throws UserError where another process works on the folder or sweep.json is of another version,
/// which leave all as it was; and where no run names a sweep or two name different ones, which
/// leaves all but the records as it was.
RecoveredSweep recover_sweep(const std::filesystem::path& folder);

}  // namespace heteroperf
