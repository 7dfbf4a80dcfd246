// The hybrid communicator over host memory: every collective that crosses between clusters is a
// pipeline of the world's messages.
//
// An all-reduce is one of three things. `native` is the transport's own, over all ranks at once. A
// flat algorithm runs over this group's messages, so that the bytes that cross between clusters are
// counted. leader and split_rail go over the bridges. A rule or the model decides by the size;
// where there is neither, small vectors are native and larger ones take the bridges.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "metrics/base/error.hpp"
#include "runners/comm/collectives/all_reduce.hpp"
#include "runners/comm/communicator.hpp"
#include "runners/comm/hybrid/hybrid_group.hpp"

namespace heteroperf {
namespace {

/// Up to this size the number of steps counts, not the bytes that cross: a transport takes lg p
/// steps, a hierarchy one up, one across and one down at least.
constexpr Bytes few_bytes{8192};

/// The window, or more where the link between clusters is so long that it holds more segments.
std::size_t segments_in_flight(const HybridConfig& config) {
  const std::size_t window = config.window;
  if (!config.model || config.model->between.empty()) return window;
  const LinkCurve& link = config.model->between;
  const Bytes segment =
      config.segment > Bytes(0) ? config.segment : longest_bridge_segment(WireFormat::fp32);
  const double on_the_way =
      2 * link.latency().value() * link.bandwidth().value() / static_cast<double>(segment.value());
  const double wanted = std::min(std::ceil(on_the_way) + 2, static_cast<double>(most_in_flight));
  return std::max(window, static_cast<std::size_t>(wanted));
}

class HostGroup final : public HybridGroup {
 public:
  HostGroup(std::shared_ptr<Communicator> world, HybridConfig config)
      : HybridGroup(std::move(world), std::move(config), InsideWork::tree),
        selector_(config_.rules, config_.model),
        cluster_of_(ranks()),
        in_flight_(segments_in_flight(config_)) {
    for (std::size_t r = 0; r < ranks(); ++r) {
      cluster_of_[r] = config_.clusters.cluster_of(RankId(r));
    }
  }

  using Communicator::all_reduce;
  void all_reduce(ConstBuffer input, MutableBuffer result, Reduction reduction) override {
    HETEROPERF_EXPECT(input.count == result.count && input.type == result.type);
    const WireFormat wire = bridge_wire(input.type, reduction);
    if (input.count == 0) return;
    if (ranks() == 1) return convert(input, result);
    const Choice& chosen = choose(Bytes(input.bytes()), wire);
    if (chosen.algorithm == Algorithm::native) {
      return world_->all_reduce(input, result, reduction);
    }
    if (!uses_bridges(chosen.algorithm)) {
      // The messages of this group count the bytes that cross between clusters.
      const InCollective inside(in_collective_);
      const OperationScope operation(*world_);
      return heteroperf::all_reduce(
          {*this, input, result, reduction, scratch_, chosen.segment.value()}, chosen.algorithm);
    }
    if (is_one_cluster()) {
      throw UserError(
          fmt::format("algorithm {} in a group of one cluster", to_string(chosen.algorithm)),
          "it needs several clusters", "Choose a flat one, such as segmented_ring");
    }
    if (!needs_wide_sums(input.type, reduction)) {
      return sum_by_clusters(input, result, reduction, chosen);
    }
    const PartialSums sums = make_partial_sums(input, result, reduction, size(), scratch_);
    sum_by_clusters(sums.input, sums.partial, Reduction::sum, chosen);
    sums.finish_part(0, input.count);
  }

  void all_to_all(ConstBuffer input, Counts to_each, MutableBuffer result,
                  Counts from_each) override {
    world_->all_to_all(input, to_each, result, from_each);
    for (std::size_t to = 0; to < ranks(); ++to) {
      count_sent(RankId(to), to_each[to] * size_of(input.type));
    }
  }
  std::unique_ptr<Transfer> start_send(ConstBuffer values, RankId to, int tag) override {
    check_tag(tag);
    auto transfer = world_->start_send(values, to, tag);
    count_sent(to, values.bytes());
    return transfer;
  }
  std::unique_ptr<Transfer> start_receive(MutableBuffer values, RankId from, int tag) override {
    check_tag(tag);
    return world_->start_receive(values, from, tag);
  }
  void send(ConstBuffer values, RankId to, int tag) override {
    check_tag(tag);
    world_->send(values, to, tag);
    count_sent(to, values.bytes());
  }
  void receive(MutableBuffer values, RankId from, int tag) override {
    check_tag(tag);
    world_->receive(values, from, tag);
  }
  void exchange(std::span<const Outgoing> sends, std::span<const Incoming> receives) override {
    for (const Outgoing& out : sends) check_tag(out.tag);
    for (const Incoming& in : receives) check_tag(in.tag);
    world_->exchange(sends, receives);
    for (const Outgoing& out : sends) count_sent(out.to, out.values.bytes());
  }
  std::unique_ptr<Communicator> split(int colour, int key) override {
    auto group = world_->split(colour, key);
    HybridConfig config = config_of(*group);
    return make_hybrid_communicator(std::move(group), std::move(config));
  }

  Choice choice(Bytes size, DataType type, Reduction reduction) const override {
    const bool encodes = type == DataType::f32 && adds(reduction) && !is_one_cluster();
    return choose(size, encodes ? config_.wire : WireFormat::fp32);
  }
  BridgeTraffic traffic() const override { return traffic_; }

 private:
  void count_sent(RankId to, std::size_t bytes) {
    if (cluster_of_[to.index()] != cluster_of_[self()]) {
      traffic_.add(bytes, bytes);
    }
  }
  void check_tag(int tag) const {
    if (!in_collective_) check_users_tag(tag, message_tags::first_reserved);
  }
  /// The choice for this size; valid until the next call.
  const Choice& choose(Bytes size, WireFormat wire) const {
    const bool by_model = config_.segment == Bytes(0) && config_.model.has_value();
    const Bytes without_model =
        config_.segment > Bytes(0) ? config_.segment : longest_bridge_segment(wire);
    const Choice& chosen = selector_.choose({size, wire, by_model ? Bytes(0) : without_model});
    const auto covers = [&](const SelectionRule& rule) { return rule.covers(size); };
    if (is_one_cluster() || config_.model || std::ranges::any_of(config_.rules, covers)) {
      return chosen;
    }
    if (wire == WireFormat::fp32 && size <= few_bytes) return chosen;
    bridged_.algorithm = plans_->fitting();
    bridged_.segment = chosen.segment;
    bridged_.wire = wire;
    bridged_.reason = wire == WireFormat::fp32 ? "several clusters, no rule and no model: bridges"
                                               : "wire formats need bridges";
    return bridged_;
  }
  PipelineCall call_over(const CutVector& cut) {
    PipelineCall call{*world_};
    call.clusters = cluster_count();
    call.window = in_flight_;
    call.lanes = cut.plan.lanes.size();
    call.segments = cut.segments;
    call.roles = cut.plan.roles;
    return call;
  }
  void sum_by_clusters(ConstBuffer input, MutableBuffer result, Reduction reduction,
                       const Choice& chosen) {
    const std::size_t segment = segment_elements(chosen.segment.value(), input.type, chosen.wire);
    sum({plans_->all_reduce(chosen.algorithm, input.count, segment), input, result, reduction,
         chosen.wire, bridge_scheme(cluster_count(), chosen.wire)});
  }

  Communicator& native() override { return *world_; }
  std::size_t segment_length(DataType type, WireFormat wire) const override {
    return segment_elements(longest_bridge_segment(wire).value(), type, wire);
  }
  void sum(const BridgedSum& call) override {
    PipelineCall pipeline = call_over(call.cut);
    pipeline.input = call.input;
    pipeline.result = call.result;
    pipeline.reduction = call.reduction;
    pipeline.wire = call.wire;
    pipeline.scheme = call.scheme;
    run_pipeline(pipeline, scratch_, traffic_);
  }
  void copy(const CutVector& cut, MutableBuffer result, std::size_t sources) override {
    PipelineCall pipeline = call_over(cut);
    pipeline.result = result;
    pipeline.window *= sources;
    run_pipeline(pipeline, scratch_, traffic_);
  }
  void copy_block(ConstBuffer from, MutableBuffer to) override { convert(from, to); }
  void reduce_wide(ConstBuffer input, MutableBuffer result, RankId root,
                   Reduction reduction) override {
    const MutableBuffer wide = wide_memory(input.count, 0);
    convert(input, wide);
    reduce(wide, wide, root, Reduction::sum);
    if (rank() == root) finish(wide, result, reduction, size());
  }
  void reduce_scatter_wide(ConstBuffer all, MutableBuffer result, Counts counts,
                           Reduction reduction) override {
    const MutableBuffer memory = wide_memory(all.count, result.count);
    const MutableBuffer wide = memory.part(0, all.count);
    const MutableBuffer reduced = memory.part(all.count, result.count);
    convert(all, wide);
    reduce_scatter(wide, reduced, counts, Reduction::sum);
    finish(reduced, result, reduction, size());
  }
  MutableBuffer wide_memory(std::size_t first, std::size_t second) {
    const std::size_t count = first + second;
    return {scratch_.slot(scratch_slots::partial, count * size_of(DataType::i64)), count,
            DataType::i64};
  }

  mutable Selector selector_;
  mutable Choice bridged_;
  std::vector<std::size_t> cluster_of_;  ///< by rank
  std::size_t in_flight_;                ///< segments per bridge
  Scratch scratch_;
  bool in_collective_ = false;  ///< a flat algorithm runs over this group's messages
};

}  // namespace

std::unique_ptr<HybridCommunicator> make_host_memory_group(std::shared_ptr<Communicator> world,
                                                           HybridConfig config) {
  return std::make_unique<HostGroup>(std::move(world), std::move(config));
}

}  // namespace heteroperf
