// Cutting a vector into lanes and segments, and the roles of one rank in them.
//
// The clusters may have different numbers of bridges of different speed. Each cluster would cut the
// vector [0, 1) by the shares of its own bridges. The union of these cuts gives the lanes: within a
// lane every cluster has exactly one bridge at work, so the lane is carried by one rank of each
// cluster, its tops. For example with shares (1/2, 1/2) and (1) there are two lanes, and the only
// bridge of the second cluster is a top of both.
#include "runners/comm/hybrid/hybrid_group.hpp"

#include <algorithm>
#include <cmath>

#include "runners/comm/wire/wire_codec.hpp"

namespace heteroperf {
namespace {

/// Cuts closer than this count as the same.
constexpr double cut_tolerance = 1e-9;
/// Long vectors are cut at multiples of this, which are whole blocks of the int8 wire.
constexpr std::size_t cut_unit = 256;

/// Calls visit(bridge, end) with the place in the vector where each bridge's share ends.
template <class Visit>
void each_share(const RankCluster& cluster, Visit visit) {
  double total = 0, end = 0;
  for (const Bridge& bridge : cluster.bridges) total += bridge.share;
  for (const Bridge& bridge : cluster.bridges) visit(bridge, end += bridge.share / total);
}

/// The bridge that carries the place `at` in [0, 1) of the vector.
RankId bridge_at(const RankCluster& cluster, double at) {
  const Bridge* carrier = nullptr;
  each_share(cluster, [&](const Bridge& bridge, double end) {
    if (carrier == nullptr && at < end) carrier = &bridge;
  });
  return carrier == nullptr ? cluster.bridges.back().rank : carrier->rank;
}

/// Collects the places at which any cluster cuts the vector, with 0 and 1.
std::vector<double> cuts_of_all(const RankClusters& clusters) {
  std::vector<double> cuts{0, 1};
  for (const RankCluster& cluster : clusters.clusters) {
    each_share(cluster, [&](const Bridge&, double end) { cuts.push_back(end); });
  }
  std::sort(cuts.begin(), cuts.end());
  const auto same = [](double a, double b) { return b - a < cut_tolerance; };
  cuts.erase(std::unique(cuts.begin(), cuts.end(), same), cuts.end());
  return cuts;
}

/// Returns the element at the place `part` of a vector; long vectors are cut at whole units.
std::size_t cut_at(std::size_t count, double part) {
  const auto exact = static_cast<std::size_t>(std::llround(static_cast<double>(count) * part));
  if (part >= 1 || exact >= count) return count;
  return exact < 16 * cut_unit ? exact : exact / cut_unit * cut_unit;
}

}  // namespace

std::vector<Lane> leader_lanes(const RankClusters& clusters) {
  Lane lane;
  for (const RankCluster& cluster : clusters.clusters) {
    lane.tops.push_back(cluster.bridges.front().rank);
  }
  return {lane};
}

std::vector<Lane> split_rail_lanes(const RankClusters& clusters) {
  const std::vector<double> cuts = cuts_of_all(clusters);
  std::vector<Lane> lanes;
  for (std::size_t k = 0; k + 1 < cuts.size(); ++k) {
    Lane lane{{}, cuts[k], k + 2 == cuts.size() ? 1.0 : cuts[k + 1]};
    for (const RankCluster& cluster : clusters.clusters) {
      lane.tops.push_back(bridge_at(cluster, (lane.begin + lane.end) / 2));
    }
    // A rank with two cards may be two bridges in a row; its lanes join.
    if (!lanes.empty() && lanes.back().tops == lane.tops) {
      lanes.back().end = lane.end;
    } else {
      lanes.push_back(std::move(lane));
    }
  }
  return lanes;
}

void add_lanes(const std::vector<Lane>& lanes, VectorSegment whole,
               std::vector<VectorSegment>& parts) {
  for (std::size_t k = 0; k < lanes.size(); ++k) {
    const std::size_t begin = cut_at(whole.count, lanes[k].begin);
    const std::size_t end = cut_at(whole.count, lanes[k].end);
    if (begin == end) continue;
    parts.push_back({whole.begin + begin, end - begin, whole.result_begin + begin, whole.role + k});
  }
}

void cut_segments(const std::vector<VectorSegment>& parts, std::size_t segment,
                  std::vector<VectorSegment>& segments) {
  struct Placed {
    double progress;  ///< the middle of the segment within its part, in [0, 1]
    VectorSegment segment;
  };
  std::vector<Placed> placed;
  for (const VectorSegment& part : parts) {
    const std::size_t pieces = (part.count + segment - 1) / segment;
    for (std::size_t k = 0; k < pieces; ++k) {
      const std::size_t begin = k * segment;
      placed.push_back({(static_cast<double>(k) + 0.5) / static_cast<double>(pieces),
                        {part.begin + begin, std::min(segment, part.count - begin),
                         part.result_begin + begin, part.role}});
    }
  }
  if (parts.size() > 1) std::ranges::stable_sort(placed, {}, &Placed::progress);
  segments.clear();
  for (const Placed& entry : placed) segments.push_back(entry.segment);
}

std::size_t segment_elements(std::size_t bytes, DataType type, WireFormat wire) {
  std::size_t elements = std::max<std::size_t>(1, bytes / size_of(type));
  if (wire != WireFormat::fp32 && elements > wire_block) elements -= elements % wire_block;
  return elements;
}

LanePlans::LanePlans(const RankClusters& clusters, RankId self, InsideWork inside)
    : clusters_(clusters), self_(self), inside_(inside), local_(clusters.cluster_of(self)) {
  leader_.lanes = leader_lanes(clusters);
  split_rail_.lanes = split_rail_lanes(clusters);
  for (LanePlan* plan : {&leader_, &split_rail_}) {
    for (const Lane& lane : plan->lanes) plan->roles.push_back(all_reduce_role(lane));
  }
}

CutVector LanePlans::all_reduce(Algorithm algorithm, std::size_t count, std::size_t segment) {
  return cut(algorithm == Algorithm::leader ? leader_ : split_rail_, count, segment, 0);
}

CutVector LanePlans::broadcast(std::size_t count, std::size_t segment, RankId root) {
  return cut(broadcasts(), count, segment, root.index());
}

CutVector LanePlans::reduce(std::size_t count, std::size_t segment, RankId root) {
  return cut(reductions(), count, segment, root.index());
}

CutVector LanePlans::all_gather(Counts counts, std::size_t segment) {
  return cut_blocks(broadcasts(), counts, segment);
}

CutVector LanePlans::reduce_scatter(Counts counts, std::size_t segment) {
  const CutVector cut = cut_blocks(reductions(), counts, segment);
  const std::size_t first = block_of(counts, self_.index()).begin;
  for (VectorSegment& entry : segments_) {
    entry.result_begin = cut.plan.root(entry.role) == self_ ? entry.begin - first : 0;
  }
  return cut;
}

CutVector LanePlans::cut(const LanePlan& plan, std::size_t count, std::size_t segment,
                         std::size_t root) {
  parts_.clear();
  add_lanes(plan.lanes, {0, count, 0, root * plan.lanes.size()}, parts_);
  cut_segments(parts_, segment, segments_);
  return {plan, segments_};
}

CutVector LanePlans::cut_blocks(const LanePlan& plan, Counts counts, std::size_t segment) {
  parts_.clear();
  for_each_block(counts, [&](std::size_t root, Slice block) {
    add_lanes(plan.lanes, {block.begin, block.count, block.begin, root * plan.lanes.size()},
              parts_);
  });
  cut_segments(parts_, segment, segments_);
  return {plan, segments_};
}

/// Makes the roles for every root on first use.
const LanePlan& LanePlans::by_root(LanePlan& plan,
                                   SegmentRole (LanePlans::*role)(const Lane&, RankId)
                                       const) const {
  if (!plan.roles.empty()) return plan;
  plan.lanes = split_rail_.lanes;
  for (int root = 0; root < clusters_.ranks(); ++root) {
    for (const Lane& lane : plan.lanes) plan.roles.push_back((this->*role)(lane, RankId(root)));
  }
  return plan;
}

RankId LanePlans::inside_rank(RankId rank) const {
  const auto place = std::lower_bound(members().begin(), members().end(), rank);
  return RankId(static_cast<std::int32_t>(place - members().begin()));
}

std::size_t LanePlans::place_in_chain(RankId root) const {
  const std::size_t count = clusters_.clusters.size();
  return (local_ + count - clusters_.cluster_of(root)) % count;
}

void LanePlans::add_way_up(SegmentRole& role, RankId top) const {
  if (members().size() == 1) return;
  if (inside_ == InsideWork::library) {
    role.inside_up = inside_rank(top);
    return;
  }
  const TreePlace place = tree_place(members(), self_, top, inside_arity);
  role.parent = place.parent;
  role.children = place.children;
}

void LanePlans::add_way_down(SegmentRole& role, RankId top) const {
  if (members().size() == 1) return;
  if (inside_ == InsideWork::library) {
    role.inside_down = inside_rank(top);
    return;
  }
  const TreePlace place = tree_place(members(), self_, top, inside_arity);
  role.source = place.parent;
  role.targets.insert(role.targets.end(), place.children.begin(), place.children.end());
}

SegmentRole LanePlans::all_reduce_role(const Lane& lane) const {
  SegmentRole role;
  const RankId top = lane.tops[local_];
  add_way_up(role, top);
  add_way_down(role, top);
  if (self_ == top) role.bridge = {lane.tops, local_, {}};
  return role;
}

SegmentRole LanePlans::broadcast_role(const Lane& lane, RankId root) const {
  const std::size_t count = clusters_.clusters.size();
  const std::size_t place = place_in_chain(root);
  SegmentRole role;
  const bool is_top = self_ == lane.tops[local_];
  if (is_top && place + 1 < count) {
    role.targets.push_back(lane.tops[(local_ + 1) % count]);
    role.crossing = 1;
  }
  add_way_down(role, place == 0 ? root : lane.tops[local_]);
  if (is_top && place > 0) role.source = lane.tops[(local_ + count - 1) % count];
  return role;
}

SegmentRole LanePlans::reduce_role(const Lane& lane, RankId root) const {
  const std::size_t collector = clusters_.cluster_of(root);
  const RankId top = lane.tops[local_];
  SegmentRole role;
  add_way_up(role, top);
  role.keeps_result = self_ == root;
  if (self_ == top) role.bridge = {lane.tops, local_, collector};
  if (local_ == collector && root != top) {
    if (self_ == top) role.targets.push_back(root);
    if (self_ == root) role.source = top;
  }
  return role;
}

}  // namespace heteroperf
