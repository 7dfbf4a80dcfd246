#pragma once

#include <functional>
#include <vector>

#include "runners/cluster/rank_clusters.hpp"
#include "runners/comm/discovery/link_probe.hpp"
#include "runners/comm/discovery/rank_descriptor.hpp"

namespace heteroperf {

/// Returns the measured one-way bandwidth between two ranks, of which the first is the lower one.
using MeasureBandwidth = std::function<BytesPerSecond(RankId, RankId)>;

struct AgglomerationConfig {
  /// Two groups stay apart when their link is more than this many times slower than the links
  /// inside them. At least 1.
  double gap = 2.0;
};

/// Groups ranks into clusters; agglomeration.cpp explains how. Works for any number and size of
/// clusters; the order of ranks does not matter. `reason` of the result tells what decided, with
/// the numbers. `measure` is called once per pair, for the same pairs in the same order on every
/// rank.
RankClusters agglomerate(const std::vector<RankDescriptor>& ranks, const MeasureBandwidth& measure,
                         const AgglomerationConfig& config);

/// Finds the clusters of a group: agglomerates with short measurements between representatives.
/// Where ranks talk to those of their own vendor and library over a group of these alone, `links`
/// is each rank's own group. Collective; the same result on all ranks.
RankClusters discover_clusters(const LinkGroup& links,
                               const std::vector<RankDescriptor>& descriptors,
                               const AgglomerationConfig& config = {});

}  // namespace heteroperf
