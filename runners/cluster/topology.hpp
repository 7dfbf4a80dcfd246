#pragma once

#include <string>
#include <vector>

#include "metrics/base/quantity.hpp"
#include "runners/cluster/cluster.hpp"
#include "runners/cluster/cpu_set.hpp"
#include "runners/cluster/system_files.hpp"

namespace heteroperf {

/// All caches of one level and kind that have the same size.
struct CacheLevel {
  int level = 1;
  std::string kind;  ///< "data", "instruction" or "unified"
  Bytes size{0};
  int count = 0;
};

struct NumaNode {
  int id = 0;
  Bytes memory{0};
  CpuSet cpus;
};

/// The inside of the processors, as hwloc sees it.
struct Topology {
  Observed<int> sockets, cores, logical_cpus;
  std::vector<CacheLevel> caches;    ///< by level and kind; may be empty in a virtual machine
  std::vector<NumaNode> numa_nodes;  ///< ordered by id
  std::string source;                ///< the library and its version
  std::string reason;  ///< says why caches and nodes are missing; empty when they are not
};

/// Returns the size of all caches of the last level together, as programs share them; 0 where none
/// is known.
Bytes last_level_cache(const Topology& topology);

/// Reads the topology. Never throws: a number that cannot be read is unavailable. hwloc's own
/// environment (HWLOC_SYNTHETIC, HWLOC_XMLFILE) is honoured.
Topology probe_topology();

/// Names the interfaces of this process's network namespace that are up and running, sorted,
/// without the loopback. The list is empty where the system does not tell.
std::vector<std::string> running_interfaces();

/// Finds the cards among `interfaces`, by /sys/class/net.
///
/// Only Ethernet and InfiniBand count. Interfaces that stand on others (bridge, bond, VLAN), the
/// host's ends of virtual cables in a bridge, and devices that lead nowhere (dummy, ifb) are left
/// out. The nearest come first: those on the memory node of the first of `cpus`, then real devices,
/// then the fastest, then by name. The bandwidth of a virtual device is nominal and so counts as
/// unknown.
std::vector<NetworkCard> network_cards(const std::vector<std::string>& interfaces,
                                       const CpuSet& cpus, const SystemFiles& files);

}  // namespace heteroperf
