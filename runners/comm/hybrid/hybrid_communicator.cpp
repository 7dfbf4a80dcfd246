#include "runners/comm/hybrid/hybrid_communicator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "metrics/error.hpp"
#include "runners/comm/collectives/all_reduce.hpp"
#include "runners/comm/collectives/flat_algorithms.hpp"
#include "runners/comm/collectives/message_tags.hpp"
#include "runners/comm/element_types.hpp"
#include "runners/comm/hybrid/hybrid_setup.hpp"

namespace heteroperf {
namespace {

std::size_t sum(Counts counts) {
  return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
}

std::size_t block_begin(Counts counts, std::size_t rank) { return sum(counts.first(rank)); }

bool adds(Reduction reduction) {
  return reduction == Reduction::sum || reduction == Reduction::average;
}

/// Up to here the number of steps counts, not the bytes that cross: a transport takes lg p steps,
/// a hierarchy one up, one across and one down at least.
constexpr Bytes few_bytes{8192};

/// A group that uses lanes in one way, with the roles of this rank.
struct Plan {
  std::vector<Lane> lanes;
  std::vector<SegmentRole> roles;
};

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
  bool encodes(Reduction reduction) const {
    return config_.wire != WireFormat::fp32 && cluster_count() > 1 && adds(reduction);
  }
  /// How values are sent over bridges. Throws UserError for types that cannot be encoded.
  WireFormat wire_for(DataType type, Reduction reduction) const;
  /// Valid until the next call.
  const Choice& choose(Bytes size, WireFormat wire) const;
  /// Whether neither rule nor model says anything about this size.
  bool undecided(Bytes size) const;
  std::size_t segment_elements(std::size_t bytes, DataType type, WireFormat wire) const;
  PipelineCall call_over(const Plan& plan);
  const Plan& all_reduce_plan(Algorithm algorithm) const {
    return algorithm == Algorithm::leader ? leader_ : split_rail_;
  }
  void reduce_by_clusters(ConstBuffer mine, MutableBuffer result, Reduction reduction,
                          const Choice& chosen);
  Plan& broadcasts();
  Plan& reductions();
  void add_blocks(const Plan& plan, Counts counts, std::size_t segment);

  std::unique_ptr<Communicator> world_, inside_;
  HybridConfig config_;
  mutable Selector selector_;
  mutable Choice bridged_;
  std::vector<std::size_t> cluster_of_;  ///< by rank
  std::size_t in_flight_;                ///< segments per bridge
  std::optional<Routes> routes_;
  Plan leader_, split_rail_;
  Plan broadcasts_, reductions_;  ///< roles by root, then lane; made on first use
  std::vector<Stretch> stretches_;
  std::vector<VectorSegment> segments_;
  Scratch scratch_;
  BridgeTraffic traffic_;
  bool in_collective_ = false;  ///< a flat algorithm runs over this group's messages
};

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
  if (cluster_count() == 1) return;
  routes_.emplace(config_.clusters, rank(), inside_stage(config_));
  leader_.lanes = leader_lanes(config_.clusters);
  split_rail_.lanes = split_rail_lanes(config_.clusters);
  for (Plan* plan : {&leader_, &split_rail_}) {
    for (const Lane& lane : plan->lanes) plan->roles.push_back(routes_->all_reduce(lane));
  }
}

void HybridGroup::count_sent(RankId to, std::size_t bytes) {
  if (!crosses(to)) return;
  traffic_.logical += Bytes(bytes);
  traffic_.wire += Bytes(bytes);
}

WireFormat HybridGroup::wire_for(DataType type, Reduction reduction) const {
  if (!encodes(reduction)) return WireFormat::fp32;
  switch (type) {
    case DataType::f32:
      return config_.wire;
    case DataType::bf16:
    case DataType::f16:
      return WireFormat::fp32;
    default:
      throw UserError(
          fmt::format("a sum of {} cannot use the wire format {}", to_string(type),
                      to_string(config_.wire)),
          "f32 can be encoded; bf16 and f16 travel as they are, and so do minima and maxima",
          "Use the wire format fp32 for other types");
  }
}

Choice HybridGroup::choice(Bytes size, DataType type, Reduction reduction) const {
  return choose(size,
                type == DataType::f32 && encodes(reduction) ? config_.wire : WireFormat::fp32);
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
  bridged_.algorithm = split_rail_.lanes.size() == 1 ? Algorithm::leader : Algorithm::split_rail;
  bridged_.segment = chosen.segment;
  bridged_.wire = wire;
  bridged_.reason = wire == WireFormat::fp32 ? "several clusters, no rule and no model: bridges"
                                             : "wire formats need bridges";
  return bridged_;
}

std::size_t HybridGroup::segment_elements(std::size_t bytes, DataType type, WireFormat wire) const {
  std::size_t elements = std::max<std::size_t>(1, bytes / size_of(type));
  if (wire != WireFormat::fp32 && elements > wire_block) elements -= elements % wire_block;
  return elements;
}

PipelineCall HybridGroup::call_over(const Plan& plan) {
  PipelineCall call{*world_};
  call.inside = inside_.get();
  call.clusters = cluster_count();
  call.window = in_flight_;
  call.lanes = plan.lanes.size();
  call.segments = segments_;
  call.roles = plan.roles;
  return call;
}

void HybridGroup::all_reduce(ConstBuffer mine, MutableBuffer result, Reduction reduction) {
  HETEROPERF_EXPECT(mine.count == result.count && mine.type == result.type);
  const WireFormat wire = wire_for(mine.type, reduction);
  if (mine.count == 0) return;
  if (ranks() == 1) return convert(mine, result);
  const Choice& chosen = choose(Bytes(mine.bytes()), wire);
  if (chosen.algorithm == Algorithm::native) return world_->all_reduce(mine, result, reduction);
  if (!uses_bridges(chosen.algorithm)) {
    // Over this group, so that what crosses between clusters is counted.
    const InCollective inside(in_collective_);
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
  const Plan& plan = all_reduce_plan(chosen.algorithm);
  stretches_.clear();
  add_lanes(plan.lanes, {0, mine.count, 0, 0}, stretches_);
  cut_segments(stretches_, segment_elements(chosen.segment.value(), mine.type, chosen.wire),
               segments_);
  PipelineCall call = call_over(plan);
  call.mine = mine;
  call.result = result;
  call.reduction = reduction;
  call.wire = chosen.wire;
  call.scheme = bridge_scheme(cluster_count(), chosen.wire);
  run_pipeline(call, scratch_, traffic_);
}

Plan& HybridGroup::broadcasts() {
  if (broadcasts_.roles.empty()) {
    broadcasts_.lanes = split_rail_.lanes;
    for (std::size_t root = 0; root < ranks(); ++root) {
      for (const Lane& lane : broadcasts_.lanes) {
        broadcasts_.roles.push_back(
            routes_->broadcast(lane, RankId(static_cast<std::int32_t>(root))));
      }
    }
  }
  return broadcasts_;
}

Plan& HybridGroup::reductions() {
  if (reductions_.roles.empty()) {
    reductions_.lanes = split_rail_.lanes;
    for (std::size_t root = 0; root < ranks(); ++root) {
      for (const Lane& lane : reductions_.lanes) {
        reductions_.roles.push_back(routes_->reduce(lane, RankId(static_cast<std::int32_t>(root))));
      }
    }
  }
  return reductions_;
}

void HybridGroup::broadcast(MutableBuffer values, RankId root) {
  HETEROPERF_EXPECT(root.value() >= 0 && root.value() < size());
  if (values.count == 0 || ranks() == 1) return;
  if (cluster_count() == 1) return world_->broadcast(values, root);
  const Plan& plan = broadcasts();
  const auto origin = static_cast<std::size_t>(root.value());
  stretches_.clear();
  add_lanes(plan.lanes, {0, values.count, 0, origin * plan.lanes.size()}, stretches_);
  cut_segments(stretches_,
               segment_elements(longest_bridge_segment(WireFormat::fp32).value(), values.type,
                                WireFormat::fp32),
               segments_);
  PipelineCall call = call_over(plan);
  call.result = values;
  run_pipeline(call, scratch_, traffic_);
}

void HybridGroup::reduce(ConstBuffer mine, MutableBuffer result, RankId root, Reduction reduction) {
  HETEROPERF_EXPECT(root.value() >= 0 && root.value() < size());
  HETEROPERF_EXPECT(rank() != root || (mine.count == result.count && mine.type == result.type));
  const WireFormat wire = wire_for(mine.type, reduction);
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
  const Plan& plan = reductions();
  const auto origin = static_cast<std::size_t>(root.value());
  stretches_.clear();
  add_lanes(plan.lanes, {0, mine.count, 0, origin * plan.lanes.size()}, stretches_);
  cut_segments(stretches_, segment_elements(longest_bridge_segment(wire).value(), mine.type, wire),
               segments_);
  PipelineCall call = call_over(plan);
  call.mine = mine;
  call.result = is_root ? result : MutableBuffer(nullptr, 0, mine.type);
  call.reduction = reduction;
  call.wire = wire;
  run_pipeline(call, scratch_, traffic_);
}

/// Segments of all ranks' blocks, each with the role for its rank.
void HybridGroup::add_blocks(const Plan& plan, Counts counts, std::size_t segment) {
  stretches_.clear();
  std::size_t begin = 0;
  for (std::size_t root = 0; root < counts.size(); ++root) {
    add_lanes(plan.lanes, {begin, counts[root], begin, root * plan.lanes.size()}, stretches_);
    begin += counts[root];
  }
  cut_segments(stretches_, segment, segments_);
}

void HybridGroup::all_gather(ConstBuffer mine, MutableBuffer all, Counts counts) {
  HETEROPERF_EXPECT(counts.size() == ranks() && mine.count == counts[self()]);
  HETEROPERF_EXPECT(mine.type == all.type && all.count == sum(counts));
  if (cluster_count() == 1) return world_->all_gather(mine, all, counts);
  if (all.count == 0) return;
  convert(mine, all.part(block_begin(counts, self()), mine.count));
  const Plan& plan = broadcasts();
  add_blocks(plan, counts,
             segment_elements(longest_bridge_segment(WireFormat::fp32).value(), all.type,
                              WireFormat::fp32));
  PipelineCall call = call_over(plan);
  call.result = all;
  // Segments of all clusters alternate.
  call.window *= cluster_count();
  run_pipeline(call, scratch_, traffic_);
}

void HybridGroup::reduce_scatter(ConstBuffer all, MutableBuffer mine, Counts counts,
                                 Reduction reduction) {
  HETEROPERF_EXPECT(counts.size() == ranks() && mine.count == counts[self()]);
  HETEROPERF_EXPECT(mine.type == all.type && all.count == sum(counts));
  const WireFormat wire = wire_for(all.type, reduction);
  if (cluster_count() == 1) return world_->reduce_scatter(all, mine, counts, reduction);
  if (all.count == 0) return;
  const DataType partial = partial_type(all.type, reduction);
  if (partial == DataType::i64 && all.type != partial) {
    const std::size_t width = size_of(partial);
    std::byte* const memory =
        scratch_.slot(scratch_slots::partial, (all.count + mine.count) * width);
    const MutableBuffer wide(memory, all.count, partial);
    const MutableBuffer reduced(memory + all.count * width, mine.count, partial);
    convert(all, wide);
    reduce_scatter(wide, reduced, counts, Reduction::sum);
    return finish(reduced, mine, reduction, size());
  }
  const Plan& plan = reductions();
  add_blocks(plan, counts, segment_elements(longest_bridge_segment(wire).value(), all.type, wire));
  const std::size_t own = block_begin(counts, self());
  for (VectorSegment& segment : segments_) {
    const bool kept = segment.role / plan.lanes.size() == self();
    segment.result_begin = kept ? segment.begin - own : 0;
  }
  PipelineCall call = call_over(plan);
  call.mine = all;
  call.result = mine;
  call.reduction = reduction;
  call.wire = wire;
  run_pipeline(call, scratch_, traffic_);
}

void HybridGroup::all_to_all(ConstBuffer mine, Counts to_each, MutableBuffer theirs,
                             Counts from_each) {
  world_->all_to_all(mine, to_each, theirs, from_each);
  for (std::size_t to = 0; to < ranks(); ++to) {
    count_sent(RankId(static_cast<std::int32_t>(to)), to_each[to] * size_of(mine.type));
  }
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
  const std::int32_t mine = rank().value();
  std::vector<std::int32_t> old_ranks(static_cast<std::size_t>(group->size()));
  group->all_gather(std::span<const std::int32_t>(&mine, 1), std::span<std::int32_t>(old_ranks));
  HybridConfig config = config_;
  config.model.reset();  // it was measured with all ranks at work
  config.clusters = restrict_to(config_.clusters, old_ranks);
  if (config.clusters.clusters.size() == 1) {
    std::erase_if(config.rules,
                  [](const SelectionRule& rule) { return uses_bridges(rule.algorithm); });
  }
  return make_hybrid_communicator(std::move(group), std::move(config));
}

}  // namespace

std::unique_ptr<HybridCommunicator> make_hybrid_communicator(std::unique_ptr<Communicator> world,
                                                             std::unique_ptr<Communicator> inside,
                                                             HybridConfig config) {
  check_hybrid(config, *world, inside.get());
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
