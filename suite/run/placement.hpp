#pragma once

#include <string>
#include <vector>

#include "runners/cluster/cpu_set.hpp"
#include "suite/run/run_config.hpp"

namespace heteroperf {

/// Who computes where on this host.
struct Placement {
  int ranks = 1;  ///< of the whole run
  int threads_per_rank = 1;
  std::vector<CpuSet> cpus;  ///< per rank of this host; empty: not bound
  std::string binding;       ///< "rank 0: cpu 0, rank 1: cpu 1" or why nothing is bound
};

/// One rank per usable core and one thread per rank unless the configuration says otherwise: ranks
/// scale better than threads at the sizes a core can train. `world_ranks` is the launcher's count,
/// 0 without a launcher; throws UserError when `scale.ranks` asks for another.
Placement choose_placement(const ScaleConfig& config, const UsableCores& cores, int world_ranks);

}  // namespace heteroperf
