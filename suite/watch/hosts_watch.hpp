#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "runners/comm/communicator.hpp"
#include "suite/config/placement.hpp"
#include "suite/watch/host_load.hpp"

namespace heteroperf {

/// Every host of a run watches itself, through the first rank on it, from construction on.
class HostsWatch {
 public:
  using Reader = std::function<HostCounters(const CpuSet& cpus)>;

  /// Collective. `bindings` of all ranks, by rank, which must outlive it. `read` reads the counters
  /// of this rank's host.
  HostsWatch(
      Communicator& all, const std::vector<RankBinding>& bindings,
      Reader read = [](const CpuSet& cpus) { return read_host_counters(cpus); });
  /// Counts anew from now on. Collective.
  void start();
  /// Returns the load of this rank's host, on the first rank there; nothing on others, and where
  /// the kernel does not tell. Collective: counts what all ranks have done until now.
  std::optional<HostLoadEvent> until_now();
  /// The same by this rank alone, while the others go on: what their processes took is read from
  /// the kernel. Nothing also where one of them cannot be seen, as from within a container.
  std::optional<HostLoadEvent> so_far() const;

 private:
  std::vector<std::int64_t> pids_beside();
  double own_cpu_s_here();
  std::optional<double> seen_cpu_s() const;
  std::optional<HostLoadEvent> with_own(double own_cpu_s) const;

  Communicator& all_;
  const std::vector<RankBinding>& bindings_;
  bool one_process_;          ///< all ranks are threads of it; else each rank is a process
  std::size_t rank_, first_;  ///< first: rank on this host
  std::vector<std::int64_t> beside_pids_;  ///< processes of the run on this host
  double cpu_before_s_ = 0;
  std::optional<double> seen_before_s_;
  // On the first rank, which reads the counters:
  CpuSet cpus_;
  Reader read_;
  std::int64_t start_ns_ = 0;
  HostCounters start_;
};

}  // namespace heteroperf
