#pragma once

#include <optional>
#include <vector>

#include "runners/comm/communicator.hpp"
#include "suite/run/host_load.hpp"
#include "suite/run/placement.hpp"

namespace heteroperf {

/// Whether all ranks are threads of one process, or each is a process.
enum class RankProcesses { one, one_each };

/// Every host of a run watches itself, through the first rank on it, from construction on.
class HostsWatch {
 public:
  /// Collective. `bindings` of all ranks, by rank, which must outlive it. `read` reads the counters
  /// of this rank's host.
  HostsWatch(Communicator& all, const std::vector<RankBinding>& bindings, RankProcesses processes,
             HostLoadWatch::Reader read = {});
  /// Of this rank's host, on the first rank there; nothing on others, and where the kernel does not
  /// tell. Collective.
  std::optional<HostLoadEvent> until_now();

 private:
  double own_cpu_s_here();

  Communicator& all_;
  const std::vector<RankBinding>& bindings_;
  RankProcesses processes_;
  std::size_t rank_, first_;  ///< first: rank on this host
  double cpu_before_s_;
  std::optional<HostLoadWatch> watch_;  ///< on the first rank
};

/// The logical CPUs that the ranks on the host of that rank may use, ascending.
CpuSet cpus_beside(const std::vector<RankBinding>& bindings, std::size_t rank);

}  // namespace heteroperf
