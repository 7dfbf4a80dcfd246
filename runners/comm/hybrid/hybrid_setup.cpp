#include "runners/comm/hybrid/hybrid_setup.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "metrics/base/error.hpp"
#include "runners/comm/element_types.hpp"
#include "runners/comm/hybrid/lane_plans.hpp"
#include "runners/comm/relay/device_copier.hpp"

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

void check_device(const HybridConfig& config, Communicator& inside, ProblemList& problems) {
  check_staging(config.staging, problems);
  if (inside.memory().copier() == nullptr) {
    problems.add(fmt::format("clusters of devices over {}", inside.transport()),
                 "it does not tell how to copy between its devices and the host",
                 "Use one cluster");
  }
  if (config.inside == InsideStage::messages) {
    problems.add("messages as the inside stage of devices",
                 "inside a cluster their native library moves everything", "Use collectives");
  }
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
  if (!world.memory().on_host()) {
    problems.add("clusters over a transport with buffers in device memory",
                 "what crosses between clusters goes by way of the host",
                 "Give the host's transport as world, the device's as inside");
  }
  if (inside != nullptr && !inside->memory().on_host()) check_device(config, *inside, problems);
  problems.throw_if_any();
  if (inside == nullptr) return;
  const RankCluster& own = clusters.clusters[clusters.cluster_of(world.rank())];
  HETEROPERF_EXPECT(static_cast<std::size_t>(inside->size()) == own.ranks.size());
  HETEROPERF_EXPECT(own.ranks[static_cast<std::size_t>(inside->rank().value())] == world.rank());
}

bool sums(Reduction reduction) {
  return reduction == Reduction::sum || reduction == Reduction::average;
}

WireFormat bridge_wire(const HybridConfig& config, DataType type, Reduction reduction) {
  const bool several = config.clusters.clusters.size() > 1;
  if (config.wire == WireFormat::fp32 || !several || !sums(reduction)) return WireFormat::fp32;
  switch (type) {
    case DataType::f32:
      return config.wire;
    case DataType::bf16:
    case DataType::f16:
      return WireFormat::fp32;
    default:
      throw UserError(
          fmt::format("a sum of {} cannot use the wire format {}", to_string(type),
                      to_string(config.wire)),
          "f32 can be encoded; bf16 and f16 travel as they are, and so do minima and maxima",
          "Use the wire format fp32 for other types");
  }
}

std::size_t longest_segment(DataType type, WireFormat wire) {
  return segment_elements(longest_bridge_segment(wire).value(), type, wire);
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

HybridConfig restrict_to(const HybridConfig& config, Communicator& part, RankId self) {
  const std::int32_t mine = self.value();
  std::vector<std::int32_t> old_ranks(static_cast<std::size_t>(part.size()));
  part.all_gather(std::span<const std::int32_t>(&mine, 1), std::span<std::int32_t>(old_ranks));
  HybridConfig result = config;
  result.model.reset();
  result.clusters = restrict_to(config.clusters, old_ranks);
  if (result.clusters.clusters.size() == 1) {
    std::erase_if(result.rules,
                  [](const SelectionRule& rule) { return uses_bridges(rule.algorithm); });
  }
  return result;
}

}  // namespace heteroperf
