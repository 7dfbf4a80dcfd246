#pragma once

#include <vector>

#include "suite/run/rank_program.hpp"

namespace heteroperf {

/// The machine of one rank, for the scaling rule.
ScalingInput scaling_input(const Placement& placement, int ranks_on_host);

/// The workloads that `config` names, made and checked: data opened, graphs built, sizes chosen.
/// Throws UserError for whatever cannot run, before anything is written.
std::vector<PreparedRun> prepare_runs(const RunConfig& config, const PlanSources& sources,
                                      const Placement& placement, int ranks_on_host);

/// The part of prepare_runs that reads no data, for a process that only launches the ranks: what is
/// wrong with the configuration, and data and history that are not there.
void check_runs(const RunConfig& config, const PlanSources& sources, const Placement& placement,
                int ranks_on_host);

}  // namespace heteroperf
