// Making a hybrid communicator: the check of its configuration, and the choice between a group over
// host memory and one over device memory.
#include "runners/comm/hybrid/hybrid_communicator.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "metrics/base/error.hpp"
#include "runners/comm/hybrid/hybrid_group.hpp"

namespace heteroperf {
namespace {

void check_ranks(const RankClusters& clusters, int ranks, ProblemList& problems) {
  std::vector<int> seen(static_cast<std::size_t>(ranks), 0);
  for (const RankCluster& cluster : clusters.clusters) {
    if (cluster.ranks.empty()) problems.add(fmt::format("cluster {} has no ranks", cluster.label));
    if (!std::ranges::is_sorted(cluster.ranks)) {
      problems.add(fmt::format("the ranks of cluster {} are not ascending", cluster.label));
    }
    for (RankId rank : cluster.ranks) {
      if (rank.value() < 0 || rank.value() >= ranks) {
        problems.add(fmt::format("cluster {} names rank {}", cluster.label, rank.value()),
                     fmt::format("the group has {} ranks", ranks));
      } else if (++seen[static_cast<std::size_t>(rank.value())] == 2) {
        problems.add(fmt::format("rank {} is in two clusters", rank.value()));
      }
    }
  }
  for (int rank = 0; rank < ranks; ++rank) {
    if (seen[static_cast<std::size_t>(rank)] == 0) {
      problems.add(fmt::format("rank {} is in no cluster", rank));
    }
  }
}

void check_bridges(const RankCluster& cluster, ProblemList& problems) {
  if (cluster.bridges.empty()) {
    problems.add(fmt::format("cluster {} has no bridge", cluster.label));
    return;
  }
  double total = 0;
  for (const Bridge& bridge : cluster.bridges) {
    if (std::ranges::find(cluster.ranks, bridge.rank) == cluster.ranks.end()) {
      problems.add(
          fmt::format("rank {} is a bridge of cluster {}", bridge.rank.value(), cluster.label),
          "it is not one of its ranks");
    }
    if (!(bridge.share >= 0)) {
      problems.add(
          fmt::format("the bridge at rank {} has the share {}", bridge.rank.value(), bridge.share),
          "a share is not negative");
    }
    total += bridge.share;
  }
  if (!(total > 0)) problems.add(fmt::format("no bridge of cluster {} has a share", cluster.label));
}

void check_device(const HybridConfig& config, Communicator& inside, ProblemList& problems) {
  check_staging(config.staging, problems);
  if (inside.memory().copier() == nullptr) {
    problems.add(fmt::format("clusters of devices over {}", inside.transport()),
                 "it does not tell how to copy between its devices and the host",
                 "Use one cluster");
  }
}

/// Throws UserError with everything that is wrong. `inside` may be null.
void check(const HybridConfig& config, Communicator& world, Communicator* inside) {
  ProblemList problems;
  const RankClusters& clusters = config.clusters;
  if (clusters.clusters.empty()) problems.add("there are no clusters");
  check_ranks(clusters, world.size(), problems);
  for (const RankCluster& cluster : clusters.clusters) check_bridges(cluster, problems);
  if (config.window < 1 || config.window > static_cast<int>(most_in_flight)) {
    problems.add(fmt::format("a window of {} segments", config.window), "it is 1 to 64");
  }
  if (!world.memory().on_host()) {
    problems.add("clusters over a transport with buffers in device memory",
                 "what crosses between clusters goes by way of the host",
                 "Give the host's transport as world, the device's as inside");
  }
  if (inside != nullptr && !inside->memory().on_host()) check_device(config, *inside, problems);
  problems.throw_if_any();
  if (inside == nullptr) return;
  const std::vector<RankId>& members = clusters.clusters[clusters.cluster_of(world.rank())].ranks;
  HETEROPERF_EXPECT(static_cast<std::size_t>(inside->size()) == members.size());
  HETEROPERF_EXPECT(members[static_cast<std::size_t>(inside->rank().value())] == world.rank());
}

}  // namespace

std::unique_ptr<HybridCommunicator> make_hybrid_communicator(std::unique_ptr<Communicator> world,
                                                             std::unique_ptr<Communicator> inside,
                                                             HybridConfig config) {
  check(config, *world, inside.get());
  if (inside == nullptr || inside->memory().on_host()) {
    return make_host_memory_group(std::move(world), std::move(config));
  }
  return make_device_memory_group(std::move(world), std::move(inside), std::move(config));
}

std::unique_ptr<HybridCommunicator> make_hybrid_communicator(std::unique_ptr<Communicator> world,
                                                             HybridConfig config) {
  return make_hybrid_communicator(std::move(world), nullptr, std::move(config));
}

}  // namespace heteroperf
