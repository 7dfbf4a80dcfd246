#pragma once

#include <memory>
#include <optional>
#include <string>

#include "runners/comm/collectives/message_tags.hpp"
#include "runners/comm/collectives/partial_sums.hpp"
#include "runners/comm/hybrid/hybrid_communicator.hpp"
#include "runners/comm/hybrid/lanes.hpp"

namespace heteroperf {

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
  std::size_t ranks() const { return static_cast<std::size_t>(world_->size()); }
  std::size_t self() const { return static_cast<std::size_t>(rank().value()); }
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
