// Chooses the number of ranks, their threads and CPUs, and hands out GPUs. A launcher's count comes
// first, then --ranks, then a list of devices, then the cores of this machine. Ranks are bound
// where ranks times threads fit the cores, each to CPUs of its own; otherwise the system places
// them, and the reason is kept for the record.
//
// GPUs are given per host in the order of ranks before anybody knows how many there are; the host
// itself then folds the numbers into those it has, so that ranks share a GPU where there are fewer.
#include "suite/config/placement.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "metrics/base/error.hpp"
#include "metrics/base/name_table.hpp"
#include "runners/cluster/machine.hpp"

namespace heteroperf {
namespace {

int choose_ranks(const ScaleConfig& config, int cores, int world_ranks) {
  if (world_ranks > 0 && config.ranks > 0 && config.ranks != world_ranks) {
    throw UserError(fmt::format("--ranks {} does not fit the launcher's world", config.ranks),
                    fmt::format("it started {} ranks", world_ranks),
                    "Leave --ranks out, or give the launcher the same number");
  }
  if (world_ranks > 0) return world_ranks;
  if (config.ranks > 0) return config.ranks;
  const auto listed = static_cast<int>(config.device.names.size());
  // One rank per device that was listed; a single GPU is one rank.
  if (listed > 1 || config.uses_gpus()) return listed;
  const int threads = std::max(1, config.threads_per_rank);
  return std::max(1, cores / threads);
}

/// Says why no rank is bound; empty where `cpus` are there.
std::string reason_unbound(const ScaleConfig& config, const UsableCores& cores,
                           const Placement& placement) {
  if (config.bind == CoreBinding::none) return "scale.bind=none";
  if (!placement.cpus.empty()) return "";
  return fmt::format("{} ranks x {} threads on {} cores", placement.ranks,
                     placement.threads_per_rank, cores.count());
}

}  // namespace

Placement choose_placement(const ScaleConfig& config, const UsableCores& cores, int world_ranks) {
  Placement placement;
  placement.ranks = choose_ranks(config, cores.count(), world_ranks);
  placement.devices.resize(static_cast<std::size_t>(placement.ranks));
  placement.threads_per_rank = config.threads_per_rank > 0
                                   ? config.threads_per_rank
                                   : std::max(1, cores.count() / placement.ranks);
  placement.devices_here = cores.count() / placement.threads_per_rank;
  if (config.bind != CoreBinding::none) {
    placement.cpus = place_ranks(cores, placement.ranks, placement.threads_per_rank);
  }
  const std::string unbound = reason_unbound(config, cores, placement);
  for (int rank = 0; rank < placement.ranks; ++rank) {
    placement.bindings.push_back(
        {host_name(), unbound.empty() ? placement.cpus[rank] : cores.cpus, unbound});
  }
  return placement;
}

int devices_of_hosts(const Placement& placement) {
  std::set<std::string> hosts;
  for (const RankBinding& binding : placement.bindings) hosts.insert(binding.host);
  return std::max(placement.ranks, static_cast<int>(hosts.size()) * placement.devices_here);
}

bool has_unlike_devices(const Placement& placement) {
  return std::ranges::any_of(placement.devices, [&](const RankDevice& device) {
    return device.name != placement.devices.front().name;
  });
}

std::size_t first_beside(const std::vector<RankBinding>& bindings, std::size_t rank) {
  const auto here = [&](const RankBinding& binding) { return binding.host == bindings[rank].host; };
  return static_cast<std::size_t>(std::find_if(bindings.begin(), bindings.end(), here) -
                                  bindings.begin());
}

CpuSet cpus_beside(const std::vector<RankBinding>& bindings, std::size_t rank) {
  std::set<int> cpus;
  for (const RankBinding& binding : bindings) {
    if (binding.host == bindings[rank].host) cpus.insert(binding.cpus.begin(), binding.cpus.end());
  }
  return {cpus.begin(), cpus.end()};
}

bool measures_cpus(const Placement& placement, int rank) {
  const auto& all = placement.bindings;
  // Ranks of a host measure as long as all threads up to theirs have a CPU; the first one always
  // does.
  const auto before = std::count_if(
      all.begin(), all.begin() + rank,
      [&](const RankBinding& rank_binding) { return rank_binding.host == all[rank].host; });
  return before == 0 ||
         (before + 1) * placement.threads_per_rank <= std::ssize(cpus_beside(all, rank));
}

int core_count(const Placement& placement) {
  std::set<std::pair<std::string, int>> cores;
  for (const RankBinding& binding : placement.bindings) {
    for (const int cpu : binding.cpus) cores.emplace(binding.host, cpu);
  }
  return std::max(1, static_cast<int>(cores.size()));
}

void give_devices(const ScaleConfig& config, Placement& placement) {
  const std::vector<std::string>& names = config.device.names;
  std::vector<RankBinding>& bindings = placement.bindings;
  if (names.size() > 1 && names.size() != bindings.size()) {
    throw UserError(
        fmt::format("--device {} names {} devices", to_string(config.device), names.size()),
        fmt::format("the run has {} ranks", bindings.size()), "Name one for all, or one per rank");
  }
  std::map<std::string, int> taken;
  placement.devices.clear();
  for (std::size_t rank = 0; rank < bindings.size(); ++rank) {
    const RankDevice& device =
        placement.devices.emplace_back(read_device(names[names.size() == 1 ? 0 : rank]));
    for (const RankDevice& before : placement.devices) {
      if (before.name == device.name && before.chip != device.chip) {
        throw UserError(fmt::format("two chips are named {}", device.name),
                        "ranks of one name are one class of devices",
                        "Give one of the files another name");
      }
    }
    bindings[rank].device = device.name;
    bindings[rank].device_memory_bytes = device.chip ? device.chip->memory_bytes : 0;
    if (device.on_gpu) bindings[rank].gpu = taken[bindings[rank].host]++;
  }
}

void name_gpu(const std::vector<CudaDevice>& devices, RankBinding& binding) {
  if (!binding.gpu) return;
  *binding.gpu %= static_cast<int>(devices.size());
  const CudaDevice& device = devices[*binding.gpu];
  binding.device = device.name;
  binding.device_memory_bytes = device.memory_bytes;
}

}  // namespace heteroperf
