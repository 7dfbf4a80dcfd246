#pragma once

#include <string>

#include "suite/config/placement.hpp"
#include "suite/program/catalog.hpp"
#include "workloads/workload.hpp"

namespace heteroperf {

/// The `system` object of a record: machine, process, binding, versions.
std::string system_text(const Placement& placement, const std::string& libtorch_version);

/// Which ranks train a search's trials together; each trial has a model and a plan of its own.
std::string search_plan_text(int ranks, int groups);

/// The workload's own settings, whoever runs it: optimizer recipe, model size. Batches too where a
/// search makes its trials of them; those of a fixed model are its plan's.
std::string workload_config_text(const Workload& workload,
                                 ProgramKind program = ProgramKind::training);

}  // namespace heteroperf
