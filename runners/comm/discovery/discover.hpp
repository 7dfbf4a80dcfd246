#pragma once

#include <functional>

#include "runners/cluster/cluster.hpp"
#include "runners/comm/communicator.hpp"
#include "runners/comm/discovery/agglomeration.hpp"
#include "runners/comm/discovery/link_probe.hpp"
#include "runners/comm/selection/cost_model.hpp"

namespace heteroperf {

/// Everybody's descriptor, in rank order. Collective. Throws SystemError on every rank, naming the
/// one whose descriptor makes no sense.
std::vector<RankDescriptor> gather_descriptors(Communicator& world, const RankDescriptor& mine);

/// Finds the clusters of a group: descriptors, then short measurements between representatives
/// (64 B to 1 MiB). Collective; the same result on all ranks.
RankClusters discover_clusters(Communicator& world, const RankDescriptor& mine,
                               const AgglomerationConfig& config = {});
/// The same where the descriptors are known already.
RankClusters discover_clusters(Communicator& world, const std::vector<RankDescriptor>& descriptors,
                               const AgglomerationConfig& config = {});
/// The same for ranks that talk to those of their own vendor and library over a group of these
/// alone, each rank over its own.
RankClusters discover_clusters(const LinkGroup& links,
                               const std::vector<RankDescriptor>& descriptors,
                               const AgglomerationConfig& config = {});

struct LinkSweep {
  std::vector<Bytes> sizes;  ///< growing strictly; empty: 64 B … 16 MiB by factors of 4
  /// Per pair and size. Sizes beyond one that takes longer are left out.
  Seconds budget{0.02};
  /// Above this number of ranks only representatives of each pair of clusters are measured.
  int all_pairs_up_to = 16;
  /// On every rank before each round of measurements, of which `done` of `all` are over; may throw,
  /// on all ranks alike.
  std::function<void(std::size_t done, std::size_t all)> before_round = nullptr;
};

/// Measures links with ping-pong (median of the halves) and fills ranks, cards and links. Classes
/// are the caller's, what cards carry is measure_cards()'. Collective; the same result on all
/// ranks.
Cluster measure_links(Communicator& world, const RankClusters& clusters,
                      const std::vector<RankDescriptor>& descriptors, const LinkSweep& sweep = {});
/// The same over a group of all ranks of the harness, whose memory may be a device's.
Cluster measure_links(const LinkGroup& links, const RankClusters& clusters,
                      const std::vector<RankDescriptor>& descriptors, const LinkSweep& sweep = {});

/// Measures what predict_all_reduce() needs. `inside` as in make_hybrid_communicator. Collective;
/// the same result on all ranks.
CostModel measure_cost_model(Communicator& world, Communicator& inside,
                             const RankClusters& clusters, Bytes largest);

}  // namespace heteroperf
