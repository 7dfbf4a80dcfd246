#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace heteroperf {

struct RecoveredSweep {
  std::string done;  ///< what was rebuilt, in a line
  std::vector<std::string> warnings;
};

/// Rebuilds what is missing of a sweep: records of its runs from their journals, and sweep.json
/// from its runs where it is gone, cannot be read, or is not as it was written. What it was is kept
/// in `aside/`. A sound one keeps what it says, keys of a newer program too; only runs that turn
/// out complete are noted.
///
/// Throws UserError where another process works on the folder or sweep.json is of another version,
/// which leave all as it was, or as `rebuild_index`: then the folder is as it was but for the
/// records.
RecoveredSweep recover_sweep(const std::filesystem::path& folder);

}  // namespace heteroperf
