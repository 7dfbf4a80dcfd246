#pragma once

#include <cstdint>
#include <vector>

#include "metrics/base/error.hpp"
#include "suite/config/placement.hpp"
#include "workloads/workload.hpp"

namespace heteroperf {

/// Adds a problem where a workload needs more memory than there is. `needed_bytes` and `bindings`
/// by rank. Ranks without a GPU may each take `host_bytes` of their host (0: not known), on
/// average: what some leave, others may take. A rank on a GPU is held against all of that GPU's
/// memory, whoever shares it; the one that lacks most is named.
void check_memory(const Workload& workload, const std::vector<double>& needed_bytes,
                  const std::vector<RankBinding>& bindings, std::uint64_t host_bytes,
                  ProblemList& problems);

}  // namespace heteroperf
