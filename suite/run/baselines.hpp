#pragma once

#include <vector>

#include "runners/comm/world.hpp"
#include "runners/engine/engine.hpp"
#include "suite/run/prepared_run.hpp"
#include "suite/run/rank_program.hpp"

namespace heteroperf {

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
