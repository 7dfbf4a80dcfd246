#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "runners/cluster/machine.hpp"
#include "runners/cluster/network_cards.hpp"
#include "runners/comm/discovery/rank_descriptor.hpp"

namespace heteroperf {
namespace {

constexpr const char* unknown = "unknown";

/// x86 says "vendor_id", ARM the implementer's number.
std::string cpu_vendor(const SystemFiles& files) {
  for (const char* key : {"vendor_id", "CPU implementer"}) {
    const auto vendor = files.field("proc/cpuinfo", key, ':');
    if (vendor) return *vendor;
  }
  return unknown;
}

std::string host_name() {
  std::array<char, 256> name{};
  const bool is_known = gethostname(name.data(), name.size() - 1) == 0 && name[0] != 0;
  return is_known ? name.data() : unknown;
}

/// Online, as many as the control group lets run at once; whatever this rank is bound to.
std::uint32_t cores_of_host(const UsableCores& mine) {
  const auto online = static_cast<std::uint32_t>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
  if (!mine.quota) return online;
  return std::clamp(static_cast<std::uint32_t>(*mine.quota), 1u, online);
}

}  // namespace

std::string host_id(const SystemFiles& files) {
  const char* given = std::getenv("HETEROPERF_HOST_ID");
  if (given != nullptr && *given != 0) return given;
  const auto boot = files.text("proc/sys/kernel/random/boot_id");
  return boot ? host_name() + ":" + (*boot).substr(0, (*boot).find('-')) : host_name();
}

RankDescriptor describe_this_rank(const std::string& library, const std::string& label) {
  const SystemFiles files;
  const Machine machine = probe_machine(files);
  RankDescriptor mine{.vendor = cpu_vendor(files),
                      .model = machine.cpu_model ? *machine.cpu_model : unknown,
                      .library = library,
                      .host = host_id(files),
                      .cards = network_cards(running_interfaces(), machine.cores.cpus, files),
                      .label = label,
                      .host_cores = cores_of_host(machine.cores)};
  for (NetworkCard& card : mine.cards) card.name = mine.host + "/" + card.name;
  return mine;
}

}  // namespace heteroperf
