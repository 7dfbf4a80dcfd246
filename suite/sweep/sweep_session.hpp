#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "results/sweep/sweep_index.hpp"

namespace heteroperf {

/// How a sweep starts its runs.
struct SweepProgram {
  /// The line for /bin/sh that runs one of them into `folder`.
  std::function<std::string(const SweepRun& run, const std::filesystem::path& folder)> command;
  double deadline_s = 86400;  ///< of one run
  /// A line each of what is going on.
  std::function<void(const std::string& line)> say;
};

/// Runs what is missing, one process after another, and keeps sweep.json up to date. A folder that
/// holds the same sweep goes on: complete runs stay, what others left goes to `aside/` and they are
/// run again. A run that fails is noted and the next one begins. Throws UserError where the folder
/// holds something else or another process works on it, Error{interrupted} on a signal.
SweepIndex run_sweep(const std::filesystem::path& folder, const SweepIndex& wanted,
                     const SweepProgram& program);

}  // namespace heteroperf
