// The collectives of a hybrid group that are alike over host and device memory.
//
// Each of them checks its arguments, leaves a group of one cluster to the native communicator, and
// otherwise cuts the vector by lanes and segments. The kind of group then carries the segments:
// reduce and reduce_scatter are sums over bridges, broadcast and all_gather are copies. Averages of
// narrow integers take a way of their own, since their sums need 64 bits.
#include "runners/comm/hybrid/hybrid_group.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "metrics/base/error.hpp"
#include "runners/comm/element_types.hpp"
#include "runners/comm/hybrid/hybrid_communicator.hpp"

namespace heteroperf {

namespace {

/// The part of `cluster` in a group whose member k was rank old_ranks[k]. A cluster that has lost
/// its bridges gets its first rank as one.
RankCluster restrict_to(const RankCluster& cluster, std::span<const std::int32_t> old_ranks) {
  RankCluster part{cluster.label, {}, {}};
  for (std::size_t k = 0; k < old_ranks.size(); ++k) {
    const RankId old(old_ranks[k]), now(static_cast<std::int32_t>(k));
    if (!std::ranges::binary_search(cluster.ranks, old)) continue;
    part.ranks.push_back(now);
    for (const Bridge& bridge : cluster.bridges) {
      if (bridge.rank == old && bridge.share > 0) {
        part.bridges.push_back({now, bridge.card, bridge.share});
      }
    }
  }
  double total = 0;
  for (const Bridge& bridge : part.bridges) total += bridge.share;
  for (Bridge& bridge : part.bridges) bridge.share /= total;
  if (part.bridges.empty() && !part.ranks.empty()) {
    part.bridges.push_back({part.ranks.front(), "", 1.0});
  }
  return part;
}

}  // namespace

HybridGroup::HybridGroup(std::shared_ptr<Communicator> world, HybridConfig config,
                         InsideWork inside)
    : world_(std::move(world)), config_(std::move(config)) {
  if (!is_one_cluster()) plans_.emplace(config_.clusters, world_->rank(), inside);
}

WireFormat HybridGroup::bridge_wire(DataType type, Reduction reduction) const {
  if (config_.wire == WireFormat::fp32 || is_one_cluster() || !adds(reduction)) {
    return WireFormat::fp32;
  }
  if (type == DataType::f32) return config_.wire;
  if (type == DataType::bf16 || type == DataType::f16) return WireFormat::fp32;
  throw UserError(
      fmt::format("a sum of {} cannot use the wire format {}", to_string(type),
                  to_string(config_.wire)),
      "f32 can be encoded; bf16 and f16 travel as they are, and so do minima and maxima",
      "Use the wire format fp32 for other types");
}

HybridConfig HybridGroup::config_of(Communicator& part) const {
  const std::int32_t local = rank().value();
  std::vector<std::int32_t> old_ranks(part.size());
  part.all_gather(std::span<const std::int32_t>(&local, 1), std::span<std::int32_t>(old_ranks));
  HybridConfig config = config_;
  config.model.reset();
  config.clusters.clusters.clear();
  for (const RankCluster& cluster : config_.clusters.clusters) {
    RankCluster rest = restrict_to(cluster, old_ranks);
    if (!rest.ranks.empty()) config.clusters.clusters.push_back(std::move(rest));
  }
  std::ranges::sort(config.clusters.clusters, {},
                    [](const RankCluster& cluster) { return cluster.ranks.front(); });
  if (config.clusters.clusters.size() == 1) {
    std::erase_if(config.rules,
                  [](const SelectionRule& rule) { return uses_bridges(rule.algorithm); });
  }
  return config;
}

void HybridGroup::reduce(ConstBuffer input, MutableBuffer result, RankId root,
                         Reduction reduction) {
  HETEROPERF_EXPECT(root.value() >= 0 && root.value() < size());
  HETEROPERF_EXPECT(rank() != root || (input.count == result.count && input.type == result.type));
  const WireFormat wire = bridge_wire(input.type, reduction);
  if (input.count == 0) return;
  if (is_one_cluster()) return native().reduce(input, result, root, reduction);
  if (rank() != root) result = MutableBuffer(nullptr, 0, input.type);
  if (needs_wide_sums(input.type, reduction)) return reduce_wide(input, result, root, reduction);
  sum({plans_->reduce(input.count, segment_length(input.type, wire), root), input, result,
       reduction, wire});
}

void HybridGroup::broadcast(MutableBuffer values, RankId root) {
  HETEROPERF_EXPECT(root.value() >= 0 && root.value() < size());
  if (values.count == 0) return;
  if (is_one_cluster()) return native().broadcast(values, root);
  const std::size_t segment = segment_length(values.type, WireFormat::fp32);
  copy(plans_->broadcast(values.count, segment, root), values, 1);
}

void HybridGroup::all_gather(ConstBuffer input, MutableBuffer all, Counts counts) {
  check_blocks(*this, counts, input, all);
  if (is_one_cluster()) return native().all_gather(input, all, counts);
  if (all.count == 0) return;
  copy_block(input, part_of(all, block_of(counts, self())));
  const std::size_t segment = segment_length(all.type, WireFormat::fp32);
  copy(plans_->all_gather(counts, segment), all, cluster_count());
}

void HybridGroup::reduce_scatter(ConstBuffer all, MutableBuffer result, Counts counts,
                                 Reduction reduction) {
  check_blocks(*this, counts, result, all);
  const WireFormat wire = bridge_wire(all.type, reduction);
  if (is_one_cluster()) return native().reduce_scatter(all, result, counts, reduction);
  if (all.count == 0) return;
  if (needs_wide_sums(all.type, reduction)) {
    return reduce_scatter_wide(all, result, counts, reduction);
  }
  sum({plans_->reduce_scatter(counts, segment_length(all.type, wire)), all, result, reduction,
       wire});
}

// Making a hybrid communicator: the check of its configuration, and the choice between a group over
// host memory and one over device memory.

namespace {

void check_ranks(const RankClusters& clusters, int ranks, ProblemList& problems) {
  std::vector<int> seen(ranks, 0);
  for (const RankCluster& cluster : clusters.clusters) {
    if (cluster.ranks.empty()) problems.add(fmt::format("cluster {} has no ranks", cluster.label));
    if (!std::ranges::is_sorted(cluster.ranks)) {
      problems.add(fmt::format("the ranks of cluster {} are not ascending", cluster.label));
    }
    for (RankId rank : cluster.ranks) {
      if (rank.value() < 0 || rank.value() >= ranks) {
        problems.add(fmt::format("cluster {} names rank {}", cluster.label, rank.value()),
                     fmt::format("the group has {} ranks", ranks));
      } else if (++seen[rank.value()] == 2) {
        problems.add(fmt::format("rank {} is in two clusters", rank.value()));
      }
    }
  }
  for (int rank = 0; rank < ranks; ++rank) {
    if (seen[rank] == 0) {
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
  HETEROPERF_EXPECT(members[inside->rank().value()] == world.rank());
}

}  // namespace

std::unique_ptr<HybridCommunicator> make_hybrid_communicator(std::unique_ptr<Communicator> world,
                                                             HybridConfig config,
                                                             std::unique_ptr<Communicator> inside) {
  check(config, *world, inside.get());
  if (inside == nullptr || inside->memory().on_host()) {
    return make_host_memory_group(std::move(world), std::move(config));
  }
  return make_device_memory_group(std::move(world), std::move(inside), std::move(config));
}

}  // namespace heteroperf
