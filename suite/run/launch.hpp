#pragma once

#include <string>
#include <vector>

#include "suite/program/exit_code.hpp"
#include "suite/config/run_config.hpp"
#include "suite/run/run_recorder.hpp"
#include "suite/program/verb.hpp"

namespace heteroperf {

/// Runs what the configuration names: one workload, or every workload of the suite one after
/// another in a folder each. Starts the ranks (threads, or mpirun on this program again), or joins
/// the launcher's world. Prints the result table (or the JSON record) on rank 0.
ExitCode launch_run(const RunConfig& config, const RunIdentity& identity,
                    const GlobalOptions& options);

}  // namespace heteroperf
