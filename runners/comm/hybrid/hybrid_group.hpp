#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runners/cluster/rank_clusters.hpp"
#include "runners/comm/algorithm.hpp"
#include "runners/comm/collectives/message_tags.hpp"
#include "runners/comm/collectives/partial_sums.hpp"
#include "runners/comm/collectives/segment_pipeline.hpp"
#include "runners/comm/hybrid/hybrid_communicator.hpp"
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

/// A window has at most this many segments.
constexpr std::size_t most_in_flight = 64;

/// A sum over the bridges between clusters.
struct BridgedSum {
  CutVector cut;
  ConstBuffer input;
  MutableBuffer result;
  Reduction reduction;
  WireFormat wire = WireFormat::fp32;
  BridgeScheme scheme = BridgeScheme::everybody;
};

/// The knowledge that hybrid groups over host memory and over device memory share: checks of
/// arguments, wire formats, and which lanes a collective takes. A group of one cluster hands its
/// calls to native(). The two kinds of groups differ in the virtual functions below.
class HybridGroup : public HybridCommunicator {
 public:
  RankId rank() const override { return world_->rank(); }
  int size() const override { return world_->size(); }
  std::string transport() const override { return "hybrid"; }
  void barrier() override { world_->barrier(); }
  const RankClusters& clusters() const override { return config_.clusters; }

  using Communicator::all_gather;
  using Communicator::reduce_scatter;
  void reduce(ConstBuffer input, MutableBuffer result, RankId root, Reduction reduction) override;
  void broadcast(MutableBuffer values, RankId root) override;
  void all_gather(ConstBuffer input, MutableBuffer all, Counts counts) override;
  void reduce_scatter(ConstBuffer all, MutableBuffer result, Counts counts,
                      Reduction reduction) override;

 protected:
  /// The configuration has been checked. `inside` says who works inside a cluster.
  HybridGroup(std::shared_ptr<Communicator> world, HybridConfig config, InsideWork inside);

  std::size_t cluster_count() const { return config_.clusters.clusters.size(); }
  bool is_one_cluster() const { return cluster_count() == 1; }
  std::size_t ranks() const { return world_->size(); }
  std::size_t self() const { return rank().index(); }
  /// The format of contributions on bridges. Throws UserError for types that cannot be encoded.
  WireFormat bridge_wire(DataType type, Reduction reduction) const;
  /// The configuration of `part`, a part of this group: without the model, which was measured with
  /// all ranks at work, and in one cluster without rules for several. Collective in `part`.
  HybridConfig config_of(Communicator& part) const;

  /// The communicator that does the collectives of a group of one cluster.
  virtual Communicator& native() = 0;
  /// The elements of a segment where nothing but type and wire format is known.
  virtual std::size_t segment_length(DataType type, WireFormat wire) const = 0;
  virtual void sum(const BridgedSum& call) = 0;
  /// Copies each segment from its root to everybody. The segments of `sources` clusters alternate.
  virtual void copy(const CutVector& cut, MutableBuffer result, std::size_t sources) = 0;
  /// Copies this rank's block to its place in a gathered vector.
  virtual void copy_block(ConstBuffer from, MutableBuffer to) = 0;
  /// These take averages of narrow integers, which are sums of 64 bits on the way.
  virtual void reduce_wide(ConstBuffer input, MutableBuffer result, RankId root,
                           Reduction reduction) = 0;
  virtual void reduce_scatter_wide(ConstBuffer all, MutableBuffer result, Counts counts,
                                   Reduction reduction) = 0;

  const std::shared_ptr<Communicator> world_;
  HybridConfig config_;
  std::optional<LanePlans> plans_;  ///< with several clusters
  BridgeTraffic traffic_;
};

/// Returns true when contributions are added, not compared.
inline bool adds(Reduction reduction) { return undivided(reduction) == Reduction::sum; }

/// Returns true for averages whose partial sums have 64 bits, unlike their values.
inline bool needs_wide_sums(DataType type, Reduction reduction) {
  return partial_type(type, reduction) == DataType::i64 && type != DataType::i64;
}

/// A group over host memory (host_group.cpp). The configuration has been checked.
std::unique_ptr<HybridCommunicator> make_host_memory_group(std::shared_ptr<Communicator> world,
                                                           HybridConfig config);
/// A group over the device memory of `inside` (device_group.cpp).
std::unique_ptr<HybridCommunicator> make_device_memory_group(std::shared_ptr<Communicator> world,
                                                             std::unique_ptr<Communicator> inside,
                                                             HybridConfig config);

}  // namespace heteroperf
