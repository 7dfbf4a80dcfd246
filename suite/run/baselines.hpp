#pragma once

#include <vector>

#include "runners/comm/world.hpp"
#include "runners/engine/engine.hpp"
#include "suite/run/prepared_run.hpp"
#include "suite/run/rank_program.hpp"

namespace heteroperf {

/// The plan of all of the cluster's ranks and `samples` a step that is predicted to be the fastest:
/// the planner's, or an even one (every pp × tp × dp, every micro-batch, and the schedules 1f1b,
/// zb-h1 and `schedule`). Throws UserError where none is possible.
ChosenPlan best_plan_alone(const Workload& workload, const Cluster& cluster, std::uint64_t samples,
                           const std::string& schedule);

/// Each class of the run's cluster alone, where there are several: as many devices, the same
/// samples per step, its own best plan. Empty where nothing is predicted and no baselines are
/// wanted.
std::vector<Baseline> choose_baselines(const PreparedRun& run);

/// Runs the baselines one after another, each in a folder of its own below the run's, and puts what
/// they did into the run's journal; without `with_baselines` only what is predicted of them.
/// Collective over the world, after run_workload().
ProgramEnd run_baselines(const PreparedRun& run, World& world, Engine& engine, FirstRank first);

}  // namespace heteroperf
