#include "runners/cluster/topology.hpp"

#include <hwloc.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <tuple>
#include <type_traits>

namespace heteroperf {
namespace {

using HwlocTopology =
    std::unique_ptr<std::remove_pointer_t<hwloc_topology_t>, decltype(&hwloc_topology_destroy)>;

/// Loads the topology; null when hwloc cannot read this machine, and errno then tells why.
HwlocTopology load() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return {nullptr, &hwloc_topology_destroy};
  HwlocTopology topology(raw, &hwloc_topology_destroy);
  hwloc_topology_set_icache_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_ALL);
  if (hwloc_topology_load(raw) != 0) topology.reset();
  return topology;
}

/// Counts the objects of a type.
Observed<int> count_of(hwloc_topology_t topology, hwloc_obj_type_t type,
                       const std::string& source) {
  const int count = hwloc_get_nbobjs_by_type(topology, type);
  if (count > 0) return Observed<int>::of(count, source);
  return Observed<int>::none(source,
                             std::string("no ") + hwloc_obj_type_string(type) + " reported");
}

/// Names the kind of a cache as the record has it.
std::string cache_kind(hwloc_obj_cache_type_t type) {
  if (type == HWLOC_OBJ_CACHE_DATA) return "data";
  return type == HWLOC_OBJ_CACHE_INSTRUCTION ? "instruction" : "unified";
}

/// Lists the caches, equal ones together.
std::vector<CacheLevel> caches_of(hwloc_topology_t topology) {
  std::map<std::tuple<int, std::string, std::uint64_t>, int> counts;
  for (int depth = 0; depth < hwloc_topology_get_depth(topology); ++depth) {
    if (hwloc_obj_type_is_cache(hwloc_get_depth_type(topology, depth)) == 0) continue;
    for (unsigned i = 0; i < hwloc_get_nbobjs_by_depth(topology, depth); ++i) {
      const auto& cache = hwloc_get_obj_by_depth(topology, depth, i)->attr->cache;
      ++counts[{static_cast<int>(cache.depth), cache_kind(cache.type), cache.size}];
    }
  }
  std::vector<CacheLevel> caches;
  for (const auto& [key, count] : counts) {
    const auto& [level, kind, size] = key;
    caches.push_back({level, kind, Bytes(size), count});
  }
  return caches;
}

/// Lists the memory nodes with their CPUs.
std::vector<NumaNode> nodes_of(hwloc_topology_t topology) {
  std::vector<NumaNode> nodes;
  hwloc_obj_t object = nullptr;
  while ((object = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, object)) != nullptr) {
    NumaNode node{
        static_cast<int>(object->os_index), Bytes(object->attr->numanode.local_memory), {}};
    for (int cpu = hwloc_bitmap_first(object->cpuset); cpu >= 0;
         cpu = hwloc_bitmap_next(object->cpuset, cpu)) {
      node.cpus.push_back(cpu);
    }
    nodes.push_back(std::move(node));
  }
  std::ranges::sort(nodes, {}, &NumaNode::id);
  return nodes;
}

/// Names the library and its version as the source of all values.
std::string library_version() {
  const unsigned version = hwloc_get_api_version();  // 0xMMmmpp
  return "hwloc, API " + std::to_string(version >> 16) + '.' +
         std::to_string((version >> 8) & 0xffU);
}

}  // namespace

Bytes last_level_cache(const Topology& topology) {
  int last_level = 0;
  Bytes sum(0);
  for (const CacheLevel& cache : topology.caches) {
    if (cache.kind == "instruction" || cache.level < last_level) continue;
    if (cache.level > last_level) sum = Bytes(0);
    last_level = cache.level;
    sum += cache.size * static_cast<std::uint64_t>(cache.count);
  }
  return sum;
}

Topology probe_topology() {
  const std::string source = library_version();
  const HwlocTopology topology = load();
  if (!topology) {
    const std::string reason = errno != 0 ? std::strerror(errno) : "hwloc cannot read the machine";
    const auto none = Observed<int>::none(source, reason);
    return {none, none, none, {}, {}, source, reason};
  }
  hwloc_topology_t raw = topology.get();
  return {count_of(raw, HWLOC_OBJ_PACKAGE, source),
          count_of(raw, HWLOC_OBJ_CORE, source),
          count_of(raw, HWLOC_OBJ_PU, source),
          caches_of(raw),
          nodes_of(raw),
          source,
          {}};
}

}  // namespace heteroperf
