#pragma once

#include "runners/comm/hybrid/device_pipeline.hpp"
#include "runners/comm/hybrid/hybrid_communicator.hpp"
#include "runners/comm/relay/host_stage.hpp"

namespace heteroperf {

/// The hybrid communicator over device memory: the native library inside each cluster, staging
/// through the hosts between them.
///
/// Messages inside a cluster are the library's (nccl: no tags, matched in order of their start),
/// those between clusters match by tag; either make progress in any wait of this group.
class DeviceGroup final : public HybridCommunicator {
 public:
  /// As make_hybrid_communicator; check_hybrid() has passed. `inside` holds device memory.
  DeviceGroup(std::unique_ptr<Communicator> world, std::unique_ptr<Communicator> inside,
              HybridConfig config);
  ~DeviceGroup() override;

  RankId rank() const override { return world_.rank(); }
  int size() const override { return world_.size(); }
  std::string transport() const override { return "hybrid"; }
  std::string path() const override;
  BufferMemory& memory() override { return inside_->memory(); }

  using Communicator::all_gather;
  using Communicator::all_reduce;
  using Communicator::reduce_scatter;
  void all_reduce(ConstBuffer mine, MutableBuffer result, Reduction reduction) override;
  void reduce(ConstBuffer mine, MutableBuffer result, RankId root, Reduction reduction) override;
  void broadcast(MutableBuffer values, RankId root) override;
  void all_gather(ConstBuffer mine, MutableBuffer all, Counts counts) override;
  void reduce_scatter(ConstBuffer all, MutableBuffer mine, Counts counts,
                      Reduction reduction) override;
  void all_to_all(ConstBuffer mine, Counts to_each, MutableBuffer theirs,
                  Counts from_each) override;
  std::unique_ptr<Transfer> start_send(ConstBuffer values, RankId to, int tag) override;
  std::unique_ptr<Transfer> start_receive(MutableBuffer values, RankId from, int tag) override;
  void barrier() override { world_.barrier(); }
  std::unique_ptr<Communicator> split(int colour, int key) override;

  const RankClusters& clusters() const override { return config_.clusters; }
  Choice choice(Bytes size, DataType type, Reduction reduction) const override;
  BridgeTraffic traffic() const override;

 private:
  class Progress;
  class InsideOrAcross;

  bool is_one_cluster() const { return config_.clusters.clusters.size() == 1; }
  std::size_t ranks() const { return static_cast<std::size_t>(world_.size()); }
  std::size_t self() const { return static_cast<std::size_t>(rank().value()); }
  Bytes chunk_bytes() const;
  std::size_t chunk_elements(DataType type, WireFormat wire) const;
  DevicePipeline pipeline(const LanePlan& plan, std::span<const VectorSegment> segments);
  void sum(DevicePipeline pipeline, Reduction reduction, WireFormat wire, BridgeScheme scheme);
  void copy(DevicePipeline pipeline);
  /// Device to device within this rank.
  void copy_own(ConstBuffer from, MutableBuffer to);
  std::unique_ptr<Transfer> start_across(MutableBuffer values, RankId from, int tag);
  std::unique_ptr<Transfer> start_across(ConstBuffer values, RankId to, int tag);
  std::unique_ptr<Transfer> followed(std::unique_ptr<Transfer> transfer, bool inside);

  std::unique_ptr<HybridCommunicator> host_;  ///< the same group over the hosts
  Communicator& world_;                       ///< of host_
  std::unique_ptr<Communicator> inside_;
  HybridConfig config_;
  std::optional<LanePlans> plans_;  ///< of several clusters
  std::shared_ptr<Progress> progress_;
  SlotMemory slots_;
  HostStage stage_;
  DeviceScratch scratch_;
  BridgeTraffic traffic_;
};

}  // namespace heteroperf
