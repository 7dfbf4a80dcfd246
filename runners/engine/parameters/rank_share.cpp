// Works out which stages a rank runs and which parts of which parameters it holds. A rank may run
// several stages (interleaved and two-way schedules) and may share layers with other ranks in
// groups of several sizes; a weight that two of its stages use is held once.
#include "runners/engine/parameters/rank_share.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "metrics/base/error.hpp"
#include "metrics/base/id.hpp"

namespace heteroperf {
namespace {

using ParameterKey = std::pair<NodeId, std::size_t>;

/// The parameters of local nodes, and of the tables that nodes among them are tied to.
std::set<ParameterKey> parameters_of(const std::vector<NodeId>& nodes, const ModelGraph& local) {
  std::set<ParameterKey> keys;
  for (const NodeId id : nodes) {
    const Node& node = local.node(id);
    for (std::size_t i = 0; i < node.parameters.size(); ++i) keys.emplace(id, i);
    const auto* linear = std::get_if<Linear>(&node.attributes);
    if (linear != nullptr && !linear->tied_to.empty()) keys.emplace(local.find(linear->tied_to), 0);
  }
  return keys;
}

/// The number of a shard of the whole graph, which is made when it is needed for the first time.
std::size_t shard_number(const ModelGraph& graph, const StageReplica& replica, int index,
                         std::vector<TensorShard>& shards) {
  const auto degree = static_cast<int>(replica.ranks.size());
  const auto known = std::ranges::find_if(shards, [&](const TensorShard& shard) {
    return shard.degree == degree && shard.index == index && shard.part == replica.part;
  });
  const auto number = static_cast<std::size_t>(known - shards.begin());
  if (known == shards.end()) shards.push_back(tensor_shard(graph, degree, index, replica.part));
  return number;
}

/// The last part is the first to hold the parameter, unless an earlier one has it.
void hold(const ParameterKey& key, const TensorShard& shard, RankShare& share) {
  const auto [node, index] = key;
  const ParameterShard& part = shard.parameters.at(node.index()).at(index);
  const auto held = std::ranges::find_if(share.parameters, [&](const HeldParameter& parameter) {
    return ParameterKey(parameter.node, parameter.index) == key;
  });
  const Node& local = shard.graph.node(node);
  if (held == share.parameters.end()) {
    share.parameters.push_back(
        {node, index, local.parameters[index].shape, part, share.parts.size() - 1});
  } else if (held->shard != part) {
    throw UserError(fmt::format("two stages on one rank use different parts of the {} of '{}'",
                                local.parameters[index].name, local.name),
                    "a rank holds a weight once",
                    "Give both stages the same ranks in the same order.");
  }
}

}  // namespace

RankShare rank_share(const ModelGraph& graph, const StagedGraph& staged, const Plan& plan,
                     const RankRole& role) {
  RankShare share;
  share.role = role;
  for (const RankRole::Part& part : role.parts) {
    const StageReplica& replica = plan.stages.at(part.stage).replicas.at(part.replica);
    const std::size_t number = shard_number(graph, replica, part.tensor_index, share.shards);
    const TensorShard& shard = share.shards[number];
    share.parts.push_back({part, staged.nodes.at(part.stage), number});
    for (const ParameterKey& key : parameters_of(share.parts.back().nodes, shard.graph)) {
      hold(key, shard, share);
    }
  }
  return share;
}

bool has_tensor_parallelism(const Plan& plan) {
  return std::ranges::any_of(plan.stages, [](const PlanStage& stage) {
    return std::ranges::any_of(
        stage.replicas, [](const StageReplica& replica) { return replica.ranks.size() > 1; });
  });
}

}  // namespace heteroperf
