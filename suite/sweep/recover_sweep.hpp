#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace heteroperf {

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
