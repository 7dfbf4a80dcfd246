#pragma once

#include <functional>
#include <vector>

#include "runners/cluster/bridges.hpp"
#include "runners/cluster/rank_clusters.hpp"
#include "runners/comm/discovery/rank_descriptor.hpp"

namespace heteroperf {

/// One-way bandwidth between two ranks, as measured; the first is the lower one.
using MeasureBandwidth = std::function<BytesPerSecond(RankId, RankId)>;

struct AgglomerationConfig {
  /// Two groups stay apart when their link is more than this many times slower than what they have
  /// inside. At least 1.
  double gap = 2.0;
  /// Up to this many ranks of one host all links among them are measured, and the host is cut where
  /// they differ by more than twice the gap; more ranks of one host count as close together.
  int checked_per_host = 16;
  int most_bridges = heteroperf::most_bridges;  ///< per cluster
};

/// Ranks by host, vendor, model and library; then groups of one vendor and library merge while the
/// measured bandwidth between their first ranks is within the gap of that inside them. Explicit
/// labels win over everything. Any number and size of clusters; the order of ranks does not matter
/// (rules: runners/comm/README.md). `reason` tells what decided, with the numbers.
/// `measure` is called once per pair, for the same pairs in the same order on every rank.
RankClusters agglomerate(const std::vector<RankDescriptor>& ranks, const MeasureBandwidth& measure,
                         const AgglomerationConfig& config);

}  // namespace heteroperf
