#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "results/sweep/sweep_index.hpp"
#include "suite/config/run_config.hpp"
#include "suite/program/verb.hpp"

namespace heteroperf {

/// The options of `run` that make a sweep.
struct SweepRequest {
  std::vector<Setting> settings;  ///< every run has them, one per key
  bool quick = false;
  std::vector<std::string> sweeps = {};  ///< "ranks=1,2,4", "ranks:micro-batches=1:4,2:2"
  std::int64_t repeats = 1;              ///< runs of each point, with one seed after the other
  double deadline_s = 86400;             ///< longest time of one run
  std::string out = {};                  ///< empty: results/sweep-<UTC>-<workload>-<id>
};

/// The runs of the request: every combination of the axes' values, repeated with seeds of their
/// own. A key is a flag's name without dashes or a configuration key; keys and values joined by
/// colons change together. Throws UserError with everything that is wrong at any point, before
/// anything is run.
SweepIndex plan_sweep(const SweepRequest& request);

/// Words of the command line of one run, after the program's name. `folder`: its --out.
std::vector<std::string> sweep_run_words(const SweepIndex& index, const SweepRun& run,
                                         const std::string& folder);

/// The way in which a sweep starts its runs.
struct SweepProgram {
  /// The line for /bin/sh that runs one of them into `folder`.
  std::function<std::string(const SweepRun& run, const std::filesystem::path& folder)> command;
  double deadline_s = 86400;  ///< longest time of one run
  /// Tells a user, line by line, what is going on.
  std::function<void(const std::string& line)> say;
  /// Tells a user what to do after an interruption.
  std::string way_on = {};
};

/// The runs of `index` as this program does them, for the request that planned it.
SweepProgram this_program(const SweepIndex& index, const SweepRequest& request,
                          const GlobalOptions& options);

/// Runs what is missing, one process after another, and keeps sweep.json up to date. A folder that
/// holds the same sweep goes on: complete runs stay, what others left goes to `aside/` and they are
/// run again. A run that fails is noted and the next one begins. Throws UserError where the folder
/// holds something else or another process works on it, Error{interrupted} on a signal.
SweepIndex run_sweep(const std::filesystem::path& folder, const SweepIndex& wanted,
                     const SweepProgram& program);

/// Plans the sweep, runs it with this program, each run a process of its own, and prints its table.
/// Returns 6 where runs failed (their own exit code where none is complete), 8 where one is
/// invalid.
ExitCode launch_sweep(const SweepRequest& request, const GlobalOptions& options);

}  // namespace heteroperf
