#pragma once

#include <string>
#include <vector>

#include "runners/cluster/cluster.hpp"
#include "runners/cluster/cpu_set.hpp"
#include "runners/cluster/system_files.hpp"

namespace heteroperf {

/// Names of the interfaces of this process's network namespace that are up and running, loopback
/// left out, sorted. Empty where the system does not tell.
std::vector<std::string> running_interfaces();

/// Which of `interfaces` are cards, by /sys/class/net, nearest first: on the memory node of the
/// first of `cpus`, then real devices, then the fastest, then by name. Only Ethernet and
/// InfiniBand; what stands on other interfaces (bridge, bond, VLAN), the host's ends of virtual
/// cables in a bridge and devices that lead nowhere (dummy, ifb) are left out. The bandwidth of a
/// virtual device is nominal and so counts as not known.
std::vector<NetworkCard> network_cards(const std::vector<std::string>& interfaces,
                                       const CpuSet& cpus, const SystemFiles& files);

}  // namespace heteroperf
