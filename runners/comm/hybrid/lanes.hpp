#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "runners/cluster/rank_clusters.hpp"
#include "runners/comm/algorithm.hpp"
#include "runners/comm/collectives/segment_pipeline.hpp"
#include "runners/comm/slice.hpp"

namespace heteroperf {

/// A share of the vector that crosses between clusters on one bridge: in each cluster one rank, the
/// top, carries it.
struct Lane {
  std::vector<RankId> tops;   ///< one per cluster
  double begin = 0, end = 1;  ///< the part of the vector
};

/// One lane over the first bridge of each cluster.
std::vector<Lane> leader_lanes(const RankClusters& clusters);

/// Every bridge of a cluster carries its share of the vector. Where clusters cut the vector at
/// different places, each part between two cuts is a lane, so one bridge may serve several lanes.
std::vector<Lane> split_rail_lanes(const RankClusters& clusters);

/// Cuts `whole` by the lanes and appends the parts; the part of lane l has role whole.role + l.
void add_lanes(const std::vector<Lane>& lanes, VectorSegment whole,
               std::vector<VectorSegment>& parts);

/// Cuts each part into segments of at most `segment` elements and mixes them so that all parts
/// progress alike: a part of twice the length has two segments where another has one.
void cut_segments(const std::vector<VectorSegment>& parts, std::size_t segment,
                  std::vector<VectorSegment>& segments);

/// Returns the elements of a segment of `bytes`: at least one, and whole blocks of an encoded wire.
std::size_t segment_elements(std::size_t bytes, DataType type, WireFormat wire);

/// Says who sums and hands out the values of a cluster.
enum class InsideWork {
  tree,     ///< messages along a tree of its ranks, as part of the pipeline
  library,  ///< the reduce and broadcast of its native library, one call per segment
};

/// The lanes of a collective and this rank's role in each.
struct LanePlan {
  std::vector<Lane> lanes;
  std::vector<SegmentRole> roles;  ///< by root where there is one, then by lane

  /// The root of a segment with this role.
  RankId root(std::size_t role) const {
    return RankId(static_cast<std::int32_t>(role / lanes.size()));
  }
};

/// A vector cut into segments by the lanes of a plan.
struct CutVector {
  const LanePlan& plan;
  std::span<const VectorSegment> segments;
};

/// The plans of one group of several clusters as one rank sees them, and vectors cut by them. The
/// segments have at most `segment` elements and are valid until the next cut.
class LanePlans {
 public:
  /// `clusters` outlives this object.
  LanePlans(const RankClusters& clusters, RankId self, InsideWork inside);

  /// The algorithm over bridges that fits where none is named.
  Algorithm fitting() const {
    return split_rail_.lanes.size() == 1 ? Algorithm::leader : Algorithm::split_rail;
  }
  /// `algorithm` is leader or split_rail.
  CutVector all_reduce(Algorithm algorithm, std::size_t count, std::size_t segment);
  /// Goes from cluster to cluster in a chain, so that each card sends and receives everything once.
  CutVector broadcast(std::size_t count, std::size_t segment, RankId root);
  /// The root's cluster collects the sums of the other clusters.
  CutVector reduce(std::size_t count, std::size_t segment, RankId root);
  /// A broadcast of every rank's block from that rank.
  CutVector all_gather(Counts counts, std::size_t segment);
  /// A reduction of every rank's block to that rank. The result of this rank begins with the first
  /// element of its block.
  CutVector reduce_scatter(Counts counts, std::size_t segment);

  /// The ranks of this rank's cluster.
  const std::vector<RankId>& members() const { return clusters_.clusters[local_].ranks; }
  bool is_inside(RankId rank) const { return clusters_.cluster_of(rank) == local_; }
  /// The rank of a member in the inside communicator.
  RankId inside_rank(RankId rank) const;
  /// The place of this rank's cluster in the chain of a broadcast; 0 is the root's cluster.
  std::size_t place_in_chain(RankId root) const;

 private:
  void add_way_up(SegmentRole& role, RankId top) const;
  void add_way_down(SegmentRole& role, RankId top) const;
  SegmentRole all_reduce_role(const Lane& lane) const;
  SegmentRole broadcast_role(const Lane& lane, RankId root) const;
  SegmentRole reduce_role(const Lane& lane, RankId root) const;
  const LanePlan& by_root(LanePlan& plan,
                          SegmentRole (LanePlans::*role)(const Lane&, RankId) const) const;
  const LanePlan& broadcasts() { return by_root(broadcasts_, &LanePlans::broadcast_role); }
  const LanePlan& reductions() { return by_root(reductions_, &LanePlans::reduce_role); }
  CutVector cut(const LanePlan& plan, std::size_t count, std::size_t segment, std::size_t root);
  CutVector cut_blocks(const LanePlan& plan, Counts counts, std::size_t segment);

  const RankClusters& clusters_;
  RankId self_;
  InsideWork inside_;
  std::size_t local_;  ///< this rank's cluster
  LanePlan leader_, split_rail_, broadcasts_, reductions_;
  std::vector<VectorSegment> parts_, segments_;
};

}  // namespace heteroperf
