#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runners/cluster/cpu_set.hpp"
#include "runners/engine/engine.hpp"
#include "suite/config/run_config.hpp"

namespace heteroperf {

/// Where one rank computes.
struct RankBinding {
  std::string host;
  CpuSet cpus;                  ///< bound to these, or may use these
  std::string unbound;          ///< why it is not bound; empty: it is
  std::string device = "cpu";   ///< or the GPU's name as its driver reports it
  std::optional<int> gpu = {};  ///< number among those its host shows
  /// All of that GPU's, or an emulated chip's; 0: the host's alone, or not known yet.
  std::uint64_t device_memory_bytes = 0;
};

/// Who computes where.
struct Placement {
  int ranks = 1;  ///< in the whole run
  int threads_per_rank = 1;
  std::vector<CpuSet> cpus;           ///< to bind to, per rank of this process; empty: not bound
  std::vector<RankBinding> bindings;  ///< by rank of the run
  std::vector<RankDevice> devices;    ///< by rank of the run, once they are given
  /// Devices of the ranks' kind that this host has: its GPUs, or as many as its cores make.
  int devices_here = 1;
};

/// One rank per usable core and one thread per rank unless the configuration says otherwise: ranks
/// scale better than threads at the sizes a core can train. `world_ranks` is the launcher's count,
/// 0 without a launcher; throws UserError when `scale.ranks` asks for another. All ranks are taken
/// to be on this host.
Placement choose_placement(const ScaleConfig& config, const UsableCores& cores, int world_ranks);

/// The devices of all hosts that ranks are on, which are taken to be like this one; as many as
/// ranks at least.
int devices_of_hosts(const Placement& placement);

/// True where ranks compute on devices of different names, whose roundings differ.
bool has_unlike_devices(const Placement& placement);

/// The first rank on the host of that rank.
std::size_t first_beside(const std::vector<RankBinding>& bindings, std::size_t rank);

/// The logical CPUs that the ranks on the host of that rank may use, ascending.
CpuSet cpus_beside(const std::vector<RankBinding>& bindings, std::size_t rank);

/// True where a rank takes part in measuring what its host's CPUs can do at most: as many do as
/// have CPUs of their own, for those that share one would each be measured as if they had it alone.
bool measures_cpus(const Placement& placement, int rank);

/// Logical CPUs that the ranks of the run may use together, over all hosts; at least 1.
int core_count(const Placement& placement);

/// Gives every rank of the run the device that `scale.device` names, and those on cuda their host's
/// GPUs in turn, however many it has. Throws UserError for a list of another length.
void give_devices(const ScaleConfig& config, Placement& placement);
/// Completes a rank's GPU, if it has one, with what its own host knows: which of `devices` it is,
/// shared where there are fewer than ranks, its name and memory.
void name_gpu(const std::vector<CudaDevice>& devices, RankBinding& binding);

}  // namespace heteroperf
