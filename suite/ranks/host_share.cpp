// A launcher may start several ranks on a host and may or may not bind them. Ranks that see the
// same mask of CPUs were not told apart, so they divide it among themselves; a rank whose mask is
// its own keeps all of it. Every rank gathers a hash of its host's name and of its mask from all,
// and counts those that are equal to its own.
//
// The placement of a rank is then that of a small run on the mask alone, of which it takes the part
// with its own index. Bindings travel as JSON texts, because names have any length.
#include "suite/ranks/host_share.hpp"

#include <array>
#include <nlohmann/json.hpp>
#include <string>

#include "metrics/base/random.hpp"
#include "runners/comm/communicator.hpp"

namespace heteroperf {
namespace {

using Json = nlohmann::ordered_json;

std::uint64_t hash_text(const std::string& text) {
  std::uint64_t hash = text.size();
  for (unsigned char c : text) hash = mix64(hash ^ c);
  return hash;
}

std::string text_of(const RankBinding& binding) {
  return Json{binding.host,   to_list(binding.cpus),    binding.unbound,
              binding.device, binding.gpu.value_or(-1), binding.gpu_memory_bytes}
      .dump(-1, ' ', false, Json::error_handler_t::replace);
}

RankBinding binding_from_text(const std::string& text) {
  const Json json = Json::parse(text);
  const std::string cpus = json[1];
  const int gpu = json[4];
  return {json[0], cpus.empty() ? CpuSet() : parse_cpu_list(cpus), json[2],
          json[3], gpu < 0 ? std::nullopt : std::optional(gpu),    json[5]};
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
    placement.cpus = {placement.cpus[share.index_on_mask]};
  }
  placement.bindings = {placement.bindings[share.index_on_mask]};
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
