#include "runners/comm/hybrid/routes.hpp"

#include <algorithm>

#include "metrics/base/error.hpp"

namespace heteroperf {

Routes::Routes(const RankClusters& clusters, RankId self, InsideStage stage)
    : clusters_(clusters), self_(self), stage_(stage), own_(clusters.cluster_of(self)) {
  HETEROPERF_EXPECT(stage != InsideStage::automatic);
}

RankId Routes::inside_rank(RankId rank) const {
  const auto found = std::lower_bound(members().begin(), members().end(), rank);
  return RankId(static_cast<std::int32_t>(found - members().begin()));
}

std::size_t Routes::place_in_chain(RankId root) const {
  const std::size_t count = clusters_.clusters.size();
  return (own_ + count - clusters_.cluster_of(root)) % count;
}

void Routes::add_way_up(SegmentRole& role, RankId top) const {
  if (members().size() == 1) return;
  if (stage_ == InsideStage::collectives) {
    role.inside_up = inside_rank(top);
    return;
  }
  const TreePlace place = tree_place(members(), self_, top, inside_arity);
  role.parent = place.parent;
  role.children = place.children;
}

void Routes::add_way_down(SegmentRole& role, RankId top) const {
  if (members().size() == 1) return;
  if (stage_ == InsideStage::collectives) {
    role.inside_down = inside_rank(top);
    return;
  }
  const TreePlace place = tree_place(members(), self_, top, inside_arity);
  role.source = place.parent;
  role.targets.insert(role.targets.end(), place.children.begin(), place.children.end());
}

SegmentRole Routes::all_reduce(const Lane& lane) const {
  SegmentRole role;
  const RankId top = lane.tops[own_];
  add_way_up(role, top);
  add_way_down(role, top);
  if (self_ == top) role.bridge = {lane.tops, own_, {}};
  return role;
}

SegmentRole Routes::broadcast(const Lane& lane, RankId root) const {
  const std::size_t count = clusters_.clusters.size();
  const std::size_t place = place_in_chain(root);
  SegmentRole role;
  const bool crosses = self_ == lane.tops[own_];
  if (crosses && place + 1 < count) {
    role.targets.push_back(lane.tops[(own_ + 1) % count]);
    role.crossing = 1;
  }
  add_way_down(role, place == 0 ? root : lane.tops[own_]);
  if (crosses && place > 0) role.source = lane.tops[(own_ + count - 1) % count];
  return role;
}

SegmentRole Routes::reduce(const Lane& lane, RankId root) const {
  const std::size_t collector = clusters_.cluster_of(root);
  const RankId top = lane.tops[own_];
  SegmentRole role;
  add_way_up(role, top);
  role.keeps = self_ == root ? SegmentRole::Keeps::result : SegmentRole::Keeps::nothing;
  if (self_ == top) role.bridge = {lane.tops, own_, collector};
  if (own_ == collector && root != top) {
    if (self_ == top) role.targets.push_back(root);
    if (self_ == root) role.source = top;
  }
  return role;
}

}  // namespace heteroperf
