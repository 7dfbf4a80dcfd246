#pragma once

#include "suite/config/run_config.hpp"
#include "suite/program/exit_code.hpp"
#include "suite/program/verb.hpp"
#include "suite/run/run_recorder.hpp"

namespace heteroperf {

/// Tells a run that a sweep starts its number there. The run takes its place from the sweep.json
/// beside its folder and writes it into its journal.
inline constexpr const char* sweep_run_variable = "HETEROPERF_SWEEP_RUN";

/// Runs what the configuration names: one workload, or every workload of the suite one after
/// another in a folder each. Starts the ranks (threads, or mpirun on this program again), or joins
/// the launcher's world. Prints the result table (or the JSON record) on rank 0.
ExitCode launch_run(const RunConfig& config, const RunIdentity& command,
                    const GlobalOptions& options);

}  // namespace heteroperf
