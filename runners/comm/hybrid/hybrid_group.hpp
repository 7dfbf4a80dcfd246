#pragma once

#include "runners/comm/collectives/message_tags.hpp"
#include "runners/comm/hybrid/hybrid_communicator.hpp"
#include "runners/comm/hybrid/lane_plans.hpp"

namespace heteroperf {

/// The hybrid communicator over host memory: collectives over bridges are pipelines of the world's
/// messages.
class HybridGroup final : public HybridCommunicator {
 public:
  HybridGroup(std::unique_ptr<Communicator> world, std::unique_ptr<Communicator> inside,
              HybridConfig config);

  RankId rank() const override { return world_->rank(); }
  int size() const override { return world_->size(); }
  std::string transport() const override { return "hybrid"; }

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
  void send(ConstBuffer values, RankId to, int tag) override;
  void receive(MutableBuffer values, RankId from, int tag) override;
  void exchange(std::span<const Outgoing> sends, std::span<const Incoming> receives) override;
  void barrier() override { world_->barrier(); }
  std::unique_ptr<Communicator> split(int colour, int key) override;

  const RankClusters& clusters() const override { return config_.clusters; }
  Choice choice(Bytes size, DataType type, Reduction reduction) const override;
  BridgeTraffic traffic() const override { return traffic_; }

 private:
  std::size_t cluster_count() const { return config_.clusters.clusters.size(); }
  std::size_t ranks() const { return cluster_of_.size(); }
  std::size_t self() const { return static_cast<std::size_t>(rank().value()); }
  bool crosses(RankId peer) const {
    return cluster_of_[static_cast<std::size_t>(peer.value())] != cluster_of_[self()];
  }
  void count_sent(RankId to, std::size_t bytes);
  void check_tag(int tag) const {
    if (!in_collective_) check_users_tag(tag, message_tags::first_reserved);
  }
  /// Valid until the next call.
  const Choice& choose(Bytes size, WireFormat wire) const;
  /// Whether neither rule nor model says anything about this size.
  bool undecided(Bytes size) const;
  PipelineCall call_over(const LanePlan& plan, std::span<const VectorSegment> segments);
  void reduce_by_clusters(ConstBuffer mine, MutableBuffer result, Reduction reduction,
                          const Choice& chosen);

  std::unique_ptr<Communicator> world_, inside_;
  HybridConfig config_;
  mutable Selector selector_;
  mutable Choice bridged_;
  std::vector<std::size_t> cluster_of_;  ///< by rank
  std::size_t in_flight_;                ///< segments per bridge
  std::optional<LanePlans> plans_;       ///< of several clusters
  Scratch scratch_;
  BridgeTraffic traffic_;
  bool in_collective_ = false;  ///< a flat algorithm runs over this group's messages
};

}  // namespace heteroperf
