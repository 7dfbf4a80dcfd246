#include "runners/cluster/topology.hpp"

#include <hwloc.h>
#include <ifaddrs.h>
#include <net/if.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <set>
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

namespace {

/// These are ARPHRD_ETHER and ARPHRD_INFINIBAND.
constexpr std::array card_types = {1LL, 32LL};
constexpr double bytes_per_megabit = 125'000;

/// Returns the folder in which the kernel describes an interface.
std::string folder_of(const std::string& interface) { return "sys/class/net/" + interface; }

/// Tells if hardware stands behind an interface.
bool is_device(const std::string& name, const SystemFiles& files) {
  return files.exists(folder_of(name) + "/device");
}

/// Tells if an interface is a bridge, a bond or a VLAN over others.
bool stands_on_others(const std::string& name, const std::vector<std::string>& interfaces,
                      const SystemFiles& files) {
  const std::string folder = folder_of(name);
  if (files.exists(folder + "/bridge") || files.exists(folder + "/bonding")) return true;
  return std::any_of(interfaces.begin(), interfaces.end(), [&](const std::string& lower) {
    return files.exists(folder + "/lower_" + lower);
  });
}

/// Returns true for a virtual device that leads nowhere (dummy, ifb); a virtual cable has another
/// end.
bool is_dead_end(const std::string& name, const SystemFiles& files) {
  const auto index = files.integer(folder_of(name) + "/ifindex");
  const auto linked_index = files.integer(folder_of(name) + "/iflink");
  return !is_device(name, files) && index && linked_index && *index == *linked_index;
}

/// Tells if an interface counts as a card (see the header).
bool is_card(const std::string& name, const std::vector<std::string>& interfaces,
             const SystemFiles& files) {
  const auto type = files.integer(folder_of(name) + "/type");
  if (type && std::find(card_types.begin(), card_types.end(), *type) == card_types.end()) {
    return false;
  }
  if (is_dead_end(name, files)) return false;
  const bool is_enslaved = files.exists(folder_of(name) + "/master");
  return !stands_on_others(name, interfaces, files) && (!is_enslaved || is_device(name, files));
}

/// Returns a card's bandwidth; 0 where it is not known.
BytesPerSecond bandwidth_of(const std::string& name, const SystemFiles& files) {
  const auto megabits = files.integer(folder_of(name) + "/speed");
  const bool is_known = is_device(name, files) && megabits && *megabits > 0;
  return BytesPerSecond(is_known ? static_cast<double>(*megabits) * bytes_per_megabit : 0);
}

/// Tells if a card is on the memory node of the first CPU.
bool is_near(const std::string& name, const CpuSet& cpus, const SystemFiles& files) {
  const auto node = files.integer(folder_of(name) + "/device/numa_node");
  if (!node || *node < 0 || cpus.empty()) return false;
  return files.exists("sys/devices/system/node/node" + std::to_string(*node) + "/cpu" +
                      std::to_string(cpus.front()));
}

}  // namespace

std::vector<std::string> running_interfaces() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return {};
  std::set<std::string> names;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    constexpr unsigned wanted = IFF_UP | IFF_RUNNING;
    if ((entry->ifa_flags & wanted) != wanted || (entry->ifa_flags & IFF_LOOPBACK) != 0) continue;
    names.insert(entry->ifa_name);
  }
  freeifaddrs(list);
  return {names.begin(), names.end()};
}

std::vector<NetworkCard> network_cards(const std::vector<std::string>& interfaces,
                                       const CpuSet& cpus, const SystemFiles& files) {
  std::vector<std::tuple<bool, bool, double, std::string>> ranked;
  for (const std::string& name : interfaces) {
    if (!is_card(name, interfaces, files)) continue;
    ranked.emplace_back(!is_near(name, cpus, files), !is_device(name, files),
                        -bandwidth_of(name, files).value(), name);
  }
  std::sort(ranked.begin(), ranked.end());
  std::vector<NetworkCard> cards;
  for (const auto& [is_far, is_virtual, slowness, name] : ranked) {
    cards.push_back({name, bandwidth_of(name, files)});
  }
  return cards;
}

}  // namespace heteroperf
