#pragma once

#include <vector>

#include "suite/run/prepared_run.hpp"

namespace heteroperf {

/// The machine of one rank, for the scaling rule.
ScalingInput scaling_input(const Placement& placement, int ranks_on_host);

/// A process that only launches the ranks reads no data and no journals.
enum class Reading { everything, nothing };

/// The workloads that `config` names, made and checked: data opened, graphs built, sizes chosen.
/// Throws UserError for whatever cannot run, before anything is written. With Reading::nothing it
/// finds what is wrong with the configuration, and data and history that are not there; what it
/// returns then cannot run.
std::vector<PreparedRun> prepare_runs(const RunConfig& config, const PlanSources& sources,
                                      const Placement& placement, int ranks_on_host,
                                      Reading reading = Reading::everything);

/// Adds a problem where a workload needs more memory than there is. `needed_bytes` and `bindings`
/// by rank. Ranks without a GPU may each take `host_bytes` of their host (0: not known), on
/// average: what some leave, others may take. A rank on a GPU is held against all of that GPU's
/// memory, whoever shares it; the one that lacks most is named.
void check_memory(const Workload& workload, const std::vector<double>& needed_bytes,
                  const std::vector<RankBinding>& bindings, std::uint64_t host_bytes,
                  ProblemList& problems);

}  // namespace heteroperf
