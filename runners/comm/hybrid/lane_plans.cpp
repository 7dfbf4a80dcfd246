#include "runners/comm/hybrid/lane_plans.hpp"

#include <algorithm>

#include "runners/comm/slice.hpp"
#include "runners/comm/wire/wire_codec.hpp"

namespace heteroperf {

LanePlans::LanePlans(const RankClusters& clusters, RankId self, InsideStage stage)
    : ranks_(static_cast<std::size_t>(clusters.ranks())), routes_(clusters, self, stage) {
  leader_.lanes = leader_lanes(clusters);
  split_rail_.lanes = split_rail_lanes(clusters);
  for (LanePlan* plan : {&leader_, &split_rail_}) {
    for (const Lane& lane : plan->lanes) plan->roles.push_back(routes_.all_reduce(lane));
  }
}

template <class Route>
void LanePlans::by_root(LanePlan& plan, Route route) const {
  if (!plan.roles.empty()) return;
  plan.lanes = split_rail_.lanes;
  for (std::size_t root = 0; root < ranks_; ++root) {
    for (const Lane& lane : plan.lanes) {
      plan.roles.push_back(route(lane, RankId(static_cast<std::int32_t>(root))));
    }
  }
}

const LanePlan& LanePlans::broadcasts() {
  by_root(broadcasts_,
          [this](const Lane& lane, RankId root) { return routes_.broadcast(lane, root); });
  return broadcasts_;
}

const LanePlan& LanePlans::reductions() {
  by_root(reductions_,
          [this](const Lane& lane, RankId root) { return routes_.reduce(lane, root); });
  return reductions_;
}

std::span<const VectorSegment> LanePlans::cut(const LanePlan& plan, std::size_t count,
                                              std::size_t segment, std::size_t root) {
  stretches_.clear();
  add_lanes(plan.lanes, {0, count, 0, root * plan.lanes.size()}, stretches_);
  cut_segments(stretches_, segment, segments_);
  return segments_;
}

std::span<const VectorSegment> LanePlans::cut_blocks(const LanePlan& plan, Counts counts,
                                                     std::size_t segment) {
  stretches_.clear();
  for_each_block(counts, [&](std::size_t root, Slice block) {
    add_lanes(plan.lanes, {block.begin, block.count, block.begin, root * plan.lanes.size()},
              stretches_);
  });
  cut_segments(stretches_, segment, segments_);
  return segments_;
}

std::span<const VectorSegment> LanePlans::cut_own_block(const LanePlan& plan, Counts counts,
                                                        std::size_t segment, std::size_t own) {
  cut_blocks(plan, counts, segment);
  const std::size_t first = block_of(counts, own).begin;
  for (VectorSegment& one : segments_) {
    const bool kept = one.role / plan.lanes.size() == own;
    one.result_begin = kept ? one.begin - first : 0;
  }
  return segments_;
}

std::size_t segment_elements(std::size_t bytes, DataType type, WireFormat wire) {
  std::size_t elements = std::max<std::size_t>(1, bytes / size_of(type));
  if (wire != WireFormat::fp32 && elements > wire_block) elements -= elements % wire_block;
  return elements;
}

}  // namespace heteroperf
