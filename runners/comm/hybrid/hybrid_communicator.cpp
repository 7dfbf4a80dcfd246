#include "runners/comm/hybrid/hybrid_communicator.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "metrics/base/error.hpp"
#include "runners/comm/collectives/all_reduce.hpp"
#include "runners/comm/collectives/flat_algorithms.hpp"
#include "runners/comm/hybrid/device_group.hpp"
#include "runners/comm/hybrid/hybrid_group.hpp"
#include "runners/comm/hybrid/hybrid_setup.hpp"
#include "runners/comm/operation_scope.hpp"

namespace heteroperf {
namespace {

/// Up to here the number of steps counts, not the bytes that cross: a transport takes lg p steps,
/// a hierarchy one up, one across and one down at least.
constexpr Bytes few_bytes{8192};

}  // namespace

HybridGroup::HybridGroup(std::unique_ptr<Communicator> world, std::unique_ptr<Communicator> inside,
                         HybridConfig config)
    : world_(std::move(world)),
      inside_(std::move(inside)),
      config_(std::move(config)),
      selector_(config_.rules, config_.model),
      cluster_of_(static_cast<std::size_t>(world_->size())),
      in_flight_(segments_in_flight(config_)) {
  for (std::size_t c = 0; c < cluster_count(); ++c) {
    for (RankId rank : config_.clusters.clusters[c].ranks) {
      cluster_of_[static_cast<std::size_t>(rank.value())] = c;
    }
  }
  if (cluster_count() > 1) plans_.emplace(config_.clusters, rank(), inside_stage(config_));
}

void HybridGroup::count_sent(RankId to, std::size_t bytes) {
  if (!crosses(to)) return;
  traffic_.logical += Bytes(bytes);
  traffic_.wire += Bytes(bytes);
}

Choice HybridGroup::choice(Bytes size, DataType type, Reduction reduction) const {
  const bool encodes = type == DataType::f32 && sums(reduction) && cluster_count() > 1;
  return choose(size, encodes ? config_.wire : WireFormat::fp32);
}

bool HybridGroup::undecided(Bytes size) const {
  return !config_.model &&
         std::none_of(config_.rules.begin(), config_.rules.end(),
                      [&](const SelectionRule& rule) { return rule.covers(size); });
}

const Choice& HybridGroup::choose(Bytes size, WireFormat wire) const {
  const bool by_model = config_.segment == Bytes(0) && config_.model.has_value();
  const Bytes without_model =
      config_.segment > Bytes(0) ? config_.segment : longest_bridge_segment(wire);
  const Choice& chosen = selector_.choose({size, wire, by_model ? Bytes(0) : without_model});
  if (cluster_count() == 1 || !undecided(size)) return chosen;
  if (wire == WireFormat::fp32 && size <= few_bytes) return chosen;
  bridged_.algorithm = plans_->fitting();
  bridged_.segment = chosen.segment;
  bridged_.wire = wire;
  bridged_.reason = wire == WireFormat::fp32 ? "several clusters, no rule and no model: bridges"
                                             : "wire formats need bridges";
  return bridged_;
}

PipelineCall HybridGroup::call_over(const LanePlan& plan, std::span<const VectorSegment> segments) {
  PipelineCall call{*world_};
  call.inside = inside_.get();
  call.clusters = cluster_count();
  call.window = in_flight_;
  call.lanes = plan.lanes.size();
  call.segments = segments;
  call.roles = plan.roles;
  return call;
}

void HybridGroup::all_reduce(ConstBuffer mine, MutableBuffer result, Reduction reduction) {
  HETEROPERF_EXPECT(mine.count == result.count && mine.type == result.type);
  const WireFormat wire = bridge_wire(config_, mine.type, reduction);
  if (mine.count == 0) return;
  if (ranks() == 1) return convert(mine, result);
  const Choice& chosen = choose(Bytes(mine.bytes()), wire);
  if (chosen.algorithm == Algorithm::native) return world_->all_reduce(mine, result, reduction);
  if (!uses_bridges(chosen.algorithm)) {
    // Over this group, so that what crosses between clusters is counted.
    const InCollective inside(in_collective_);
    const OperationScope operation(*world_);
    return heteroperf::all_reduce(
        {*this, mine, result, reduction, scratch_, chosen.segment.value()}, chosen.algorithm);
  }
  if (cluster_count() == 1) {
    throw UserError(
        fmt::format("algorithm {} in a group of one cluster", to_string(chosen.algorithm)),
        "it needs several clusters", "Choose a flat one, such as segmented_ring");
  }
  reduce_by_clusters(mine, result, reduction, chosen);
}

void HybridGroup::reduce_by_clusters(ConstBuffer mine, MutableBuffer result, Reduction reduction,
                                     const Choice& chosen) {
  const DataType partial = partial_type(mine.type, reduction);
  if (partial == DataType::i64 && mine.type != partial) {
    const PartialSums sums =
        make_partial_sums(mine, result, reduction, size(), scratch_, scratch_slots::partial);
    reduce_by_clusters(sums.mine, sums.partial, Reduction::sum, chosen);
    return sums.finish_part(0, mine.count);
  }
  const LanePlan& plan = plans_->all_reduce(chosen.algorithm);
  const std::size_t segment = segment_elements(chosen.segment.value(), mine.type, chosen.wire);
  PipelineCall call = call_over(plan, plans_->cut(plan, mine.count, segment));
  call.mine = mine;
  call.result = result;
  call.reduction = reduction;
  call.wire = chosen.wire;
  call.scheme = bridge_scheme(cluster_count(), chosen.wire);
  run_pipeline(call, scratch_, traffic_);
}

void HybridGroup::broadcast(MutableBuffer values, RankId root) {
  HETEROPERF_EXPECT(root.value() >= 0 && root.value() < size());
  if (values.count == 0 || ranks() == 1) return;
  if (cluster_count() == 1) return world_->broadcast(values, root);
  const LanePlan& plan = plans_->broadcasts();
  const std::size_t segment = longest_segment(values.type, WireFormat::fp32);
  PipelineCall call = call_over(
      plan, plans_->cut(plan, values.count, segment, static_cast<std::size_t>(root.value())));
  call.result = values;
  run_pipeline(call, scratch_, traffic_);
}

void HybridGroup::reduce(ConstBuffer mine, MutableBuffer result, RankId root, Reduction reduction) {
  HETEROPERF_EXPECT(root.value() >= 0 && root.value() < size());
  HETEROPERF_EXPECT(rank() != root || (mine.count == result.count && mine.type == result.type));
  const WireFormat wire = bridge_wire(config_, mine.type, reduction);
  if (mine.count == 0) return;
  if (ranks() == 1) return convert(mine, result);
  if (cluster_count() == 1) return world_->reduce(mine, result, root, reduction);
  const bool is_root = rank() == root;
  const DataType partial = partial_type(mine.type, reduction);
  if (partial == DataType::i64 && mine.type != partial) {
    const MutableBuffer wide(scratch_.slot(scratch_slots::partial, mine.count * size_of(partial)),
                             mine.count, partial);
    convert(mine, wide);
    reduce(wide, wide, root, Reduction::sum);
    if (is_root) finish(wide, result, reduction, size());
    return;
  }
  const LanePlan& plan = plans_->reductions();
  PipelineCall call =
      call_over(plan, plans_->cut(plan, mine.count, longest_segment(mine.type, wire),
                                  static_cast<std::size_t>(root.value())));
  call.mine = mine;
  call.result = is_root ? result : MutableBuffer(nullptr, 0, mine.type);
  call.reduction = reduction;
  call.wire = wire;
  run_pipeline(call, scratch_, traffic_);
}

std::unique_ptr<Transfer> HybridGroup::start_send(ConstBuffer values, RankId to, int tag) {
  check_tag(tag);
  auto transfer = world_->start_send(values, to, tag);
  count_sent(to, values.bytes());
  return transfer;
}

std::unique_ptr<Transfer> HybridGroup::start_receive(MutableBuffer values, RankId from, int tag) {
  check_tag(tag);
  return world_->start_receive(values, from, tag);
}

void HybridGroup::send(ConstBuffer values, RankId to, int tag) {
  check_tag(tag);
  world_->send(values, to, tag);
  count_sent(to, values.bytes());
}

void HybridGroup::receive(MutableBuffer values, RankId from, int tag) {
  check_tag(tag);
  world_->receive(values, from, tag);
}

void HybridGroup::exchange(std::span<const Outgoing> sends, std::span<const Incoming> receives) {
  for (const Outgoing& out : sends) check_tag(out.tag);
  for (const Incoming& in : receives) check_tag(in.tag);
  world_->exchange(sends, receives);
  for (const Outgoing& out : sends) count_sent(out.to, out.values.bytes());
}

std::unique_ptr<Communicator> HybridGroup::split(int colour, int key) {
  auto group = world_->split(colour, key);
  HybridConfig config = restrict_to(config_, *group, rank());
  return make_hybrid_communicator(std::move(group), std::move(config));
}

std::unique_ptr<HybridCommunicator> make_hybrid_communicator(std::unique_ptr<Communicator> world,
                                                             std::unique_ptr<Communicator> inside,
                                                             HybridConfig config) {
  check_hybrid(config, *world, inside.get());
  if (inside != nullptr && !inside->memory().on_host()) {
    return std::make_unique<DeviceGroup>(std::move(world), std::move(inside), std::move(config));
  }
  return std::make_unique<HybridGroup>(std::move(world), std::move(inside), std::move(config));
}

std::unique_ptr<HybridCommunicator> make_hybrid_communicator(std::unique_ptr<Communicator> world,
                                                             HybridConfig config) {
  check_hybrid(config, *world, nullptr);
  std::unique_ptr<Communicator> inside;
  if (config.clusters.clusters.size() > 1) {
    const std::size_t cluster = config.clusters.cluster_of(world->rank());
    inside = world->split(static_cast<int>(cluster), world->rank().value());
  }
  return std::make_unique<HybridGroup>(std::move(world), std::move(inside), std::move(config));
}

}  // namespace heteroperf
