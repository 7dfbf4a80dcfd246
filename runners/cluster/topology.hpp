#pragma once

#include <string>
#include <vector>

#include "metrics/base/quantity.hpp"
#include "runners/cluster/cpu_set.hpp"
#include "runners/cluster/observed.hpp"

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

/// What the processors look like from inside, as hwloc sees it.
struct Topology {
  Observed<int> sockets, cores, logical_cpus;
  std::vector<CacheLevel> caches;    ///< by level, then kind; may be empty in a virtual machine
  std::vector<NumaNode> numa_nodes;  ///< by id
  std::string source;                ///< library and version
  std::string reason;                ///< why caches and nodes are missing; empty when they are not
};

/// The size of all caches of the last level together, as programs share them; 0 where none is
/// known.
Bytes last_level_cache(const Topology& topology);

/// Never throws: what cannot be read is unavailable. hwloc's own environment (HWLOC_SYNTHETIC,
/// HWLOC_XMLFILE) is honoured.
Topology probe_topology();

}  // namespace heteroperf
