#include "runners/cluster/network_cards.hpp"

#include <ifaddrs.h>
#include <net/if.h>

#include <algorithm>
#include <array>
#include <set>
#include <tuple>

namespace heteroperf {
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
