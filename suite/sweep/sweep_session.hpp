#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "results/sweep/sweep_index.hpp"
#include "suite/program/verb.hpp"
#include "suite/sweep/sweep_request.hpp"

namespace heteroperf {

/// The way in which a sweep starts its runs.
struct SweepProgram {
  /// The line for /bin/sh that runs one of them into `folder`.
  std::function<std::string(const SweepRun& run, const std::filesystem::path& folder)> command;
  double deadline_s = 86400;  ///< longest time of one run
  /// Tells a user, line by line, what is going on.
  std::function<void(const std::string& line)> say;
};

/// Runs what is missing, one process after another, and keeps sweep.json up to date. A folder that
/// holds the same sweep goes on: complete runs stay, what others left goes to `aside/` and they are
/// run again. A run that fails is noted and the next one begins. Throws UserError where the folder
/// holds something else or another process works on it, Error{interrupted} on a signal.
SweepIndex run_sweep(const std::filesystem::path& folder, const SweepIndex& wanted,
                     const SweepProgram& program);

/// Where the runs of a sweep go and how long one may take.
struct SweepLimits {
  std::string out;  ///< empty: results/sweep-<UTC>-<workload>-<id>
  double deadline_s = 86400;
};

/// Plans the sweep, runs it with this program, each run a process of its own, and prints its table.
/// Returns 6 where runs failed (their own exit code where none is complete), 8 where one is
/// invalid.
ExitCode launch_sweep(const SweepRequest& request, const SweepLimits& limits,
                      const GlobalOptions& options);

}  // namespace heteroperf
