#pragma once

#include <string>

#include "runners/cluster/machine.hpp"
#include "suite/run/placement.hpp"
#include "workloads/workload.hpp"

namespace heteroperf {

/// The `system` object of a record: machine, process, binding, versions.
std::string system_text(const Placement& placement, const std::string& libtorch_version);

/// The plan of an even data-parallel run: one stage with all nodes, one replica per group of ranks.
/// A search has as many one-replica plans as groups.
std::string plan_text(const Workload& workload, int ranks, int groups);

/// The workload's own settings: optimizer recipe, batches, model size.
std::string workload_config_text(const Workload& workload);

}  // namespace heteroperf
