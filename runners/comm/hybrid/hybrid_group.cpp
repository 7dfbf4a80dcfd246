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

// Making a hybrid communicator: the choice between a group over host memory and one over device
// memory.

namespace {

/// Holds the clusters against the group: they partition its ranks, and each has bridges of its own.
void check_clusters(const RankClusters& clusters, int size) {
  std::vector<RankId> ranks;
  for (const RankCluster& cluster : clusters.clusters) {
    HETEROPERF_EXPECT(!cluster.ranks.empty() && std::ranges::is_sorted(cluster.ranks));
    double total = 0;
    for (const Bridge& bridge : cluster.bridges) {
      HETEROPERF_EXPECT(std::ranges::binary_search(cluster.ranks, bridge.rank));
      HETEROPERF_EXPECT(bridge.share >= 0);
      total += bridge.share;
    }
    // Bandwidths of a file may be so large that their sum is no number.
    if (!(total > 0)) {
      throw UserError(fmt::format("no bridge of cluster {} has a share", cluster.label),
                      "the bandwidths of its cards have no finite sum",
                      "Correct the cluster file.");
    }
    ranks.insert(ranks.end(), cluster.ranks.begin(), cluster.ranks.end());
  }
  std::ranges::sort(ranks);
  HETEROPERF_EXPECT(std::ssize(ranks) == size);
  for (int rank = 0; rank < size; ++rank) HETEROPERF_EXPECT(ranks[rank] == RankId(rank));
}

}  // namespace

std::unique_ptr<HybridCommunicator> make_hybrid_communicator(std::unique_ptr<Communicator> world,
                                                             HybridConfig config,
                                                             std::unique_ptr<Communicator> inside) {
  const RankClusters& clusters = config.clusters;
  check_clusters(clusters, world->size());
  HETEROPERF_EXPECT(config.window >= 1 && config.window <= static_cast<int>(most_in_flight));
  HETEROPERF_EXPECT(world->memory().on_host());
  if (inside != nullptr) {
    const auto& members = clusters.clusters[clusters.cluster_of(world->rank())].ranks;
    HETEROPERF_EXPECT(std::ssize(members) == inside->size());
    HETEROPERF_EXPECT(members[inside->rank().index()] == world->rank());
  }
  if (inside == nullptr || inside->memory().on_host()) {
    return make_host_memory_group(std::move(world), std::move(config));
  }
  HETEROPERF_EXPECT(inside->memory().copier() != nullptr);
  return make_device_memory_group(std::move(world), std::move(inside), std::move(config));
}

}  // namespace heteroperf
