#pragma once

#include <string>
#include <vector>

#include "runners/cluster/cluster.hpp"
#include "runners/cluster/cpu_set.hpp"
#include "runners/cluster/system_files.hpp"

namespace heteroperf {

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
