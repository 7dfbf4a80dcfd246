#pragma once

#include "suite/ranks/rank_context.hpp"
#include "suite/run/prepared_run.hpp"

namespace heteroperf {

/// Runs one workload on this rank, from measuring the peak to the last event. Collective over the
/// world. The stop line is left to the caller.
ProgramEnd run_workload(const PreparedRun& run, World& world, Engine& engine,
                        const FirstRank& first);

/// Each class of the run's cluster alone, where there are several: as many devices, the same
/// samples per step, its own best plan. Empty where nothing is predicted and no baselines are
/// wanted.
std::vector<Baseline> choose_baselines(const PreparedRun& run);

/// Runs the baselines one after another, each in a folder of its own below the run's, and puts what
/// they did into the run's journal; without `with_baselines` only what is predicted of them.
/// Collective over the world, after run_workload().
ProgramEnd run_baselines(const PreparedRun& run, World& world, Engine& engine,
                         const FirstRank& first);

}  // namespace heteroperf
