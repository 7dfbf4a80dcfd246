#include "suite/run/placement.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "metrics/error.hpp"

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
  const int threads = std::max(1, config.threads_per_rank);
  return std::max(1, cores / threads);
}

std::string describe(const std::vector<CpuSet>& cpus) {
  std::string text;
  for (std::size_t rank = 0; rank < cpus.size(); ++rank) {
    text += fmt::format("{}rank {}: cpu {}", rank == 0 ? "" : ", ", rank, to_list(cpus[rank]));
  }
  return text;
}

}  // namespace

Placement choose_placement(const ScaleConfig& config, const UsableCores& cores, int world_ranks) {
  Placement placement;
  placement.ranks = choose_ranks(config, cores.count(), world_ranks);
  placement.threads_per_rank = config.threads_per_rank > 0
                                   ? config.threads_per_rank
                                   : std::max(1, cores.count() / placement.ranks);
  if (config.bind == "none") {
    placement.binding = "not bound (scale.bind=none)";
    return placement;
  }
  placement.cpus = place_ranks(cores, placement.ranks, placement.threads_per_rank);
  placement.binding = placement.cpus.empty()
                          ? fmt::format("not bound ({} ranks x {} threads on {} cores)",
                                        placement.ranks, placement.threads_per_rank, cores.count())
                          : describe(placement.cpus);
  return placement;
}

}  // namespace heteroperf
