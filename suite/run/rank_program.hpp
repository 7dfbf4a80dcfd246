#pragma once

#include "suite/ranks/rank_context.hpp"
#include "suite/run/prepared_run.hpp"

namespace heteroperf {

/// Runs one workload on this rank, from measuring the peak to the last event. Collective over the
/// world. The stop line is left to the caller.
ProgramEnd run_workload(const PreparedRun& run, World& world, Engine& engine,
                        const FirstRank& first);

}  // namespace heteroperf
