#include "runners/comm/hybrid/hybrid_setup.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "metrics/error.hpp"

namespace heteroperf {
namespace {

void check_ranks(const RankClusters& clusters, int ranks, ProblemList& problems) {
  std::vector<int> seen(static_cast<std::size_t>(ranks), 0);
  for (const RankCluster& cluster : clusters.clusters) {
    if (cluster.ranks.empty()) problems.add(fmt::format("cluster {} has no ranks", cluster.label));
    if (!std::is_sorted(cluster.ranks.begin(), cluster.ranks.end())) {
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
    if (std::find(cluster.ranks.begin(), cluster.ranks.end(), bridge.rank) == cluster.ranks.end()) {
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

/// The part of `cluster` in a group whose member k was rank old_ranks[k].
RankCluster restrict_to(const RankCluster& cluster, std::span<const std::int32_t> old_ranks) {
  RankCluster result{cluster.label, {}, {}};
  for (std::size_t k = 0; k < old_ranks.size(); ++k) {
    const RankId old(old_ranks[k]), now(static_cast<std::int32_t>(k));
    if (!std::binary_search(cluster.ranks.begin(), cluster.ranks.end(), old)) continue;
    result.ranks.push_back(now);
    for (const Bridge& bridge : cluster.bridges) {
      if (bridge.rank == old && bridge.share > 0) {
        result.bridges.push_back({now, bridge.card, bridge.share});
      }
    }
  }
  double total = 0;
  for (const Bridge& bridge : result.bridges) total += bridge.share;
  for (Bridge& bridge : result.bridges) bridge.share /= total;
  if (result.bridges.empty() && !result.ranks.empty()) {
    result.bridges.push_back({result.ranks.front(), "", 1.0});
  }
  return result;
}

}  // namespace

void check_hybrid(const HybridConfig& config, Communicator& world, Communicator* inside) {
  ProblemList problems;
  const RankClusters& clusters = config.clusters;
  if (clusters.clusters.empty()) problems.add("there are no clusters");
  check_ranks(clusters, world.size(), problems);
  for (const RankCluster& cluster : clusters.clusters) check_bridges(cluster, problems);
  if (config.window < 1 || config.window > static_cast<int>(most_in_flight)) {
    problems.add(fmt::format("a window of {} segments", config.window), "it is 1 to 64");
  }
  const bool on_device = !world.memory().on_host();
  const bool inside_on_device = inside != nullptr && !inside->memory().on_host();
  if (on_device || (inside_on_device && config.inside == InsideStage::collectives)) {
    problems.add("clusters over a transport with buffers in device memory",
                 "sums between clusters are made by the host",
                 "Give the host's transport as world, and messages as the inside stage");
  }
  problems.throw_if_any();
  if (inside == nullptr) return;
  const RankCluster& own = clusters.clusters[clusters.cluster_of(world.rank())];
  HETEROPERF_EXPECT(static_cast<std::size_t>(inside->size()) == own.ranks.size());
  HETEROPERF_EXPECT(own.ranks[static_cast<std::size_t>(inside->rank().value())] == world.rank());
}

std::size_t segments_in_flight(const HybridConfig& config) {
  const auto window = static_cast<std::size_t>(config.window);
  if (!config.model || config.model->between.empty()) return window;
  const LinkCurve& link = config.model->between;
  const Bytes segment_bytes =
      config.segment > Bytes(0) ? config.segment : longest_bridge_segment(WireFormat::fp32);
  const auto segment = static_cast<double>(segment_bytes.value());
  const double on_the_way = 2 * link.latency().value() * link.bandwidth().value() / segment;
  const double wanted = std::min(std::ceil(on_the_way) + 2, static_cast<double>(most_in_flight));
  return std::max(window, static_cast<std::size_t>(wanted));
}

InsideStage inside_stage(const HybridConfig& config) {
  return config.inside == InsideStage::automatic ? InsideStage::messages : config.inside;
}

RankClusters restrict_to(const RankClusters& clusters, std::span<const std::int32_t> old_ranks) {
  RankClusters result{{}, clusters.reason};
  for (const RankCluster& cluster : clusters.clusters) {
    RankCluster part = restrict_to(cluster, old_ranks);
    if (!part.ranks.empty()) result.clusters.push_back(std::move(part));
  }
  std::sort(result.clusters.begin(), result.clusters.end(),
            [](const RankCluster& a, const RankCluster& b) { return a.ranks[0] < b.ranks[0]; });
  return result;
}

}  // namespace heteroperf
