#pragma once

#include <string>
#include <vector>

#include "runners/cluster/cpu_set.hpp"
#include "suite/run/run_config.hpp"

namespace heteroperf {

/// Where one rank computes.
struct RankBinding {
  std::string host;
  CpuSet cpus;          ///< that it is bound to, or may use
  std::string unbound;  ///< why it is not bound; empty: it is
};

/// Who computes where.
struct Placement {
  int ranks = 1;  ///< of the whole run
  int threads_per_rank = 1;
  std::vector<CpuSet> cpus;           ///< to bind to, per rank of this process; empty: not bound
  std::vector<RankBinding> bindings;  ///< by rank of the run
};

/// One rank per usable core and one thread per rank unless the configuration says otherwise: ranks
/// scale better than threads at the sizes a core can train. `world_ranks` is the launcher's count,
/// 0 without a launcher; throws UserError when `scale.ranks` asks for another. All ranks are taken
/// to be on this host.
Placement choose_placement(const ScaleConfig& config, const UsableCores& cores, int world_ranks);

/// Logical CPUs that the ranks of the run may use together, over all hosts; at least 1.
int core_count(const Placement& placement);

std::string host_name();

}  // namespace heteroperf
