// A draft in numbers becomes a plan that names nodes and ranks.
//
// The draft says how many devices of a pool each group of replicas has; here they become devices of
// the cluster. Tensor-parallel groups have to stay within a node, so places are served in falling
// order of their degree, and each takes the fullest node that still has room for it. Large groups
// first, tight nodes first: this leaves the least scattered remainder. Ranks of the plan are then
// the devices used, in the order of the cluster, so that a plan of all devices needs no list of
// them.
//
// Warm-ups are written only where they differ from the schedule's own.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "metrics/base/error.hpp"
#include "metrics/base/id.hpp"
#include "runners/plan/search/problem/graph_problem.hpp"

namespace heteroperf {
namespace {

using PoolNodes = std::vector<std::vector<RankId>>;

/// Takes the devices of a group from the first node that can hold it; of those from the one with
/// the fewest free devices. Empty where no node can.
std::vector<RankId> take(PoolNodes& nodes, std::size_t count) {
  const auto room = [&](const std::vector<RankId>& node) {
    return node.size() < count ? SIZE_MAX : node.size();
  };
  const auto best = std::ranges::min_element(nodes, {}, room);
  if (best == nodes.end() || best->size() < count) return {};
  std::vector<RankId> ranks(best->begin(), best->begin() + static_cast<std::ptrdiff_t>(count));
  best->erase(best->begin(), best->begin() + static_cast<std::ptrdiff_t>(count));
  if (best->empty()) nodes.erase(best);
  return ranks;
}

}  // namespace

Plan GraphProblem::plan(const PipelineDraft& draft) const {
  Plan plan;
  plan.graph_hash = graph_.hash();
  plan.cluster = cluster_.name;
  plan.schedule = draft.schedule;
  plan.chunks = draft.chunks;
  plan.micro_batches = draft.micro_batches;
  plan.zero_stage = draft.zero_stage;
  std::size_t node = 0;
  // Stages get their nodes, their warm-up and their wire.
  for (std::size_t s = 0; s < draft.stages.size(); ++s) {
    const DraftStage& from = draft.stages[s];
    PlanStage& stage = plan.stages.emplace_back();
    stage.recomputation = from.recomputation;
    for (const std::size_t end = layer_ends_[from.end - 1]; node < end; ++node) {
      stage.nodes.push_back(graph_.nodes()[node].name);
    }
    if (draft.schedule == "1f1b") plan.warm_up.push_back(from.warm_up);
    if (from.wire == WireFormat::fp32 || s + 1 == draft.stages.size()) continue;
    plan.wires.push_back({StageId(s), StageId(s + 1), from.wire});
  }
  PipelineDraft least = draft;
  set_schedule(least, draft.schedule);
  if (least == draft) plan.warm_up.clear();

  struct Place {
    StageId stage;
    const ReplicaGroup* group;
    int degree;
    std::vector<RankId> devices = {};
  };
  std::vector<Place> places;
  // Chunks after the first are on the devices of their position's first.
  for (int s = 0; s < draft.positions(); ++s) {
    for (const ReplicaGroup& group : draft.stages[s].groups) {
      const Place place{StageId(s), &group, problem_.degrees[group.degree]};
      places.insert(places.end(), group.replicas, place);
    }
  }
  std::vector<Place*> by_size;
  for (Place& place : places) by_size.push_back(&place);
  std::ranges::stable_sort(by_size, std::ranges::greater{}, &Place::degree);
  std::vector<PoolNodes> free = nodes_;
  for (Place* place : by_size) {
    place->devices = take(free[place->group->pool], static_cast<std::size_t>(place->degree));
    if (place->devices.empty()) {
      throw UserError(
          fmt::format("a tensor-parallel group of {} on '{}' finds no node with as many "
                      "free devices",
                      place->degree, problem_.pools[place->group->pool].name),
          "groups stay within a node", "Use smaller degrees.");
    }
  }
  // Ranks in the order of the cluster's, so that a plan of all devices needs no list of them.
  std::vector<RankId> used;
  for (const Place& place : places) {
    used.insert(used.end(), place.devices.begin(), place.devices.end());
  }
  std::ranges::sort(used);
  const auto rank_of = [&](RankId device) {
    return RankId(std::lower_bound(used.begin(), used.end(), device) - used.begin());
  };
  for (const Place& place : places) {
    plan.sequence_parallel = plan.sequence_parallel || place.degree > 1;
    StageReplica replica;
    std::ranges::transform(place.devices, std::back_inserter(replica.ranks), rank_of);
    replica.micro_batch = place.group->samples;
    replica.device_class = problem_.pools[place.group->pool].device_class;
    plan.stages[place.stage].replicas.push_back(std::move(replica));
  }
  for (StageId s(draft.positions()); plan.stages.contains(s); ++s) {
    plan.stages[s].replicas = plan.stages[StageId(draft.position_of(s).value())].replicas;
  }
  // A plan of the cluster's first ranks needs no list of devices.
  const bool first_ones = used.empty() || used.back().value() + 1 == static_cast<int>(used.size());
  if (!first_ones) plan.devices = used;
  return plan;
}

}  // namespace heteroperf
