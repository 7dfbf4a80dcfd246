// A launcher may start several ranks on a host and may or may not bind them. Ranks that see the
// same mask of CPUs were not told apart, so they divide it among themselves; a rank whose mask is
// its own keeps all of it. Every rank gathers a hash of its host's name and of its mask from all,
// and counts those that are equal to its own.
//
// The placement of a rank is then that of a small run on the mask alone, of which it takes the part
// with its own index. Bindings travel as text, one field per line, because names have any length.
#include "suite/ranks/host_share.hpp"

#include <fmt/format.h>

#include <array>
#include <sstream>
#include <string>

#include "metrics/base/random.hpp"
#include "runners/comm/communicator.hpp"

namespace heteroperf {
namespace {

std::uint64_t hash_text(const std::string& text) {
  std::uint64_t hash = text.size();
  for (unsigned char c : text) hash = mix64(hash ^ c);
  return hash;
}

// A line each: host, cpus, reason, device, GPU, its memory.
std::string text_of(const RankBinding& binding) {
  return fmt::format("{}\n{}\n{}\n{}\n{}\n{}", binding.host, to_list(binding.cpus), binding.unbound,
                     binding.device, binding.gpu ? std::to_string(*binding.gpu) : std::string(),
                     binding.gpu_memory_bytes);
}

RankBinding binding_from_text(const std::string& text) {
  std::istringstream lines(text);
  RankBinding binding;
  std::string cpus, gpu;
  std::getline(lines, binding.host);
  std::getline(lines, cpus);
  std::getline(lines, binding.unbound);
  std::getline(lines, binding.device);
  std::getline(lines, gpu);
  lines >> binding.gpu_memory_bytes;
  if (!cpus.empty()) binding.cpus = parse_cpu_list(cpus);
  if (!gpu.empty()) binding.gpu = std::stoi(gpu);
  return binding;
}

}  // namespace

HostShare share_of_host(Communicator& world, const UsableCores& cores) {
  const std::array<std::int64_t, 2> keys{static_cast<std::int64_t>(hash_text(host_name())),
                                         static_cast<std::int64_t>(hash_text(to_list(cores.cpus)))};
  std::vector<std::int64_t> all(2 * static_cast<std::size_t>(world.size()));
  world.all_gather(std::span<const std::int64_t>(keys), std::span<std::int64_t>(all));
  HostShare share{0, 0, 0};
  for (int rank = 0; rank < world.size(); ++rank) {
    const std::size_t at = 2 * static_cast<std::size_t>(rank);
    // Equal masks on different hosts are different CPUs.
    if (all[at] != keys[0]) continue;
    ++share.ranks_on_host;
    if (all[at + 1] != keys[1]) continue;
    if (rank < world.rank().value()) ++share.index_on_mask;
    ++share.ranks_on_mask;
  }
  return share;
}

Placement choose_launched_placement(const ScaleConfig& config, const UsableCores& cores,
                                    int world_ranks, const HostShare& share) {
  ScaleConfig on_mask = config;
  on_mask.ranks = share.ranks_on_mask;
  Placement placement = choose_placement(on_mask, cores, 0);
  if (!placement.cpus.empty()) {
    placement.cpus = {placement.cpus[static_cast<std::size_t>(share.index_on_mask)]};
  }
  placement.bindings = {placement.bindings[static_cast<std::size_t>(share.index_on_mask)]};
  placement.ranks = world_ranks;
  return placement;
}

std::vector<RankBinding> gather_bindings(Communicator& world, const RankBinding& binding) {
  std::vector<RankBinding> bindings;
  for (const std::string& text : gather_texts(world, text_of(binding))) {
    bindings.push_back(binding_from_text(text));
  }
  return bindings;
}

}  // namespace heteroperf
