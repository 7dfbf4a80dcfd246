#pragma once

#include "runners/cluster/rank_clusters.hpp"
#include "runners/comm/collectives/segment_pipeline.hpp"
#include "runners/comm/hybrid/lanes.hpp"

namespace heteroperf {

/// How the part of a cluster's work that stays inside it is done.
enum class InsideStage {
  automatic,    ///< messages
  messages,     ///< as part of the pipeline, over the world's messages: never waits as a whole
  collectives,  ///< by the inside communicator's reduce and broadcast, one call per segment
};

/// One rank's view of the clusters, and what it does for each lane.
class Routes {
 public:
  /// `stage` is not automatic.
  Routes(const RankClusters& clusters, RankId self, InsideStage stage);

  SegmentRole all_reduce(const Lane& lane) const;
  /// From cluster to cluster in a chain, so that each card sends and receives everything once.
  SegmentRole broadcast(const Lane& lane, RankId root) const;
  /// The root's cluster collects the sums of the others.
  SegmentRole reduce(const Lane& lane, RankId root) const;

  /// Ranks of this rank's cluster.
  const std::vector<RankId>& members() const { return clusters_.clusters[own_].ranks; }
  bool is_inside(RankId rank) const { return clusters_.cluster_of(rank) == own_; }
  /// Rank of a member in the inside communicator.
  RankId inside_rank(RankId rank) const;
  /// Where this rank's cluster stands in the chain of broadcast(); 0 for the root's.
  std::size_t place_in_chain(RankId root) const;

 private:
  void add_way_up(SegmentRole& role, RankId top) const;
  void add_way_down(SegmentRole& role, RankId top) const;

  const RankClusters& clusters_;
  RankId self_;
  InsideStage stage_;
  std::size_t own_;
};

}  // namespace heteroperf
