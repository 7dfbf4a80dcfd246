#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "results/journal/events.hpp"
#include "workloads/workload.hpp"

namespace heteroperf {

/// One of the fields that make two trainings one and the same, whatever the machine and the plan:
/// where all are equal, losses agree step by step but for rounding.
struct IdentityField {
  std::string name, value;  ///< "graph_hash", "optimizer.learning_rate", …
  friend bool operator==(const IdentityField&, const IdentityField&) = default;
};
using TrainingIdentity = std::vector<IdentityField>;

/// A field that differs, or that one of them lacks (empty).
struct IdentityDifference {
  std::string name, a, b;
};
/// In the order of a's fields, then those of b alone; those named in `except` are not looked at.
std::vector<IdentityDifference> differences(const TrainingIdentity& a, const TrainingIdentity& b,
                                            const std::vector<std::string>& except = {});

/// Reads the identity of a run from its journal's workload line. Throws UserError for a search: it
/// has no one model.
TrainingIdentity training_identity(const WorkloadEvent& workload);
/// Makes the identity of a training that is about to start.
TrainingIdentity training_identity(const Workload& workload, std::uint64_t samples_per_step,
                                   std::uint64_t seed);

}  // namespace heteroperf
