#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "suite/config/run_config.hpp"

namespace heteroperf {

/// The wishes of the user of `resume`.
struct ResumeRequest {
  std::filesystem::path run;          ///< its folder, or a file inside
  std::optional<std::uint64_t> step;  ///< the checkpoint's; absent: the last good one
  std::vector<Setting> settings;      ///< changes to the other run's configuration
};

/// A run that goes on where another stopped.
struct ResumePlan {
  RunConfig config;  ///< the other run's, with the settings; `parent` is set, `out` empty
  std::vector<std::string> warnings;
};

/// True where a run may go on with another value of this key. The data, model and recipe of a
/// training cannot change.
bool can_change_on_resume(const std::string& path);

/// Reads the run's journal and its checkpoints. Throws UserError with everything wrong: no such
/// run, a suite or a search, no good checkpoint, one of another training, settings that change the
/// training, no steps left.
///
/// Samples per step stay the same: with other ranks the micro-batches per rank follow, unless the
/// user gives them.
ResumePlan plan_resume(const ResumeRequest& request);

/// Throws UserError with every difference between the training that `parent` names and this one.
void check_continues(const ParentRun& parent, const TrainingIdentity& identity);

}  // namespace heteroperf
