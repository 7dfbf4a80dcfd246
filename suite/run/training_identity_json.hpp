#pragma once

#include <cstdint>

#include "results/events.hpp"
#include "suite/run/training_identity.hpp"
#include "workloads/workload.hpp"

namespace heteroperf {

/// Of a run, as its journal's workload line has it. Throws UserError for a search: it has no one
/// model.
TrainingIdentity training_identity(const WorkloadEvent& workload);
/// Of a training that is about to start.
TrainingIdentity training_identity(const Workload& workload, std::uint64_t samples_per_step,
                                   std::uint64_t seed);

}  // namespace heteroperf
