#pragma once

#include <string>
#include <vector>

#include "metrics/base/quantity.hpp"
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

}  // namespace heteroperf
