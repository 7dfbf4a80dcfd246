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

/// Walks the parts of a rank and holds each parameter once.
class ShareMaker {
 public:
  ShareMaker(const ModelGraph& graph, const StagedGraph& staged, const Plan& plan)
      : graph_(graph), staged_(staged), plan_(plan) {}

  RankShare run(const RankRole& role) {
    share_.role = role;
    for (const RankRole::Part& part : role.parts) add_part(part);
    return std::move(share_);
  }

 private:
  /// The part is the first to hold its parameters, unless an earlier one has them.
  void add_part(const RankRole::Part& role) {
    const StageReplica& replica = plan_.stages.at(role.stage).replicas.at(role.replica);
    const std::size_t shard =
        shard_number(static_cast<int>(replica.ranks.size()), role.tensor_index);
    share_.parts.push_back({role, staged_.nodes.at(role.stage), shard});
    for (const ParameterKey& key :
         parameters_of(share_.parts.back().nodes, share_.shards[shard].graph)) {
      hold(key, share_.shards[shard]);
    }
  }

  /// The number of a shard of the whole graph, which is made when it is needed for the first time.
  std::size_t shard_number(int degree, int index) {
    std::vector<TensorShard>& shards = share_.shards;
    const auto known = std::find_if(shards.begin(), shards.end(), [&](const TensorShard& shard) {
      return shard.degree == degree && shard.index == index;
    });
    const auto number = static_cast<std::size_t>(known - shards.begin());
    if (known == shards.end()) shards.push_back(tensor_shard(graph_, degree, index));
    return number;
  }

  void hold(const ParameterKey& key, const TensorShard& shard) {
    const auto [node, index] = key;
    const ParameterShard& part = shard.parameters.at(node.index()).at(index);
    const auto held = std::find_if(share_.parameters.begin(), share_.parameters.end(),
                                   [&](const HeldParameter& parameter) {
                                     return parameter.node == node && parameter.index == index;
                                   });
    if (held == share_.parameters.end()) {
      share_.parameters.push_back({node, index, shard.graph.node(node).parameters[index].shape,
                                   part, share_.parts.size() - 1});
    } else if (held->shard != part) {
      throw UserError(fmt::format("two stages on one rank use different parts of the {} of '{}'",
                                  graph_.node(node).parameters[index].name, graph_.node(node).name),
                      "a rank holds a weight once",
                      "Give both stages the same ranks in the same order.");
    }
  }

  const ModelGraph& graph_;
  const StagedGraph& staged_;
  const Plan& plan_;
  RankShare share_;
};

}  // namespace

RankShare rank_share(const ModelGraph& graph, const StagedGraph& staged, const Plan& plan,
                     const RankRole& role) {
  return ShareMaker(graph, staged, plan).run(role);
}

bool has_tensor_parallelism(const Plan& plan) {
  return std::any_of(plan.stages.begin(), plan.stages.end(), [](const PlanStage& stage) {
    return std::any_of(stage.replicas.begin(), stage.replicas.end(),
                       [](const StageReplica& replica) { return replica.ranks.size() > 1; });
  });
}

}  // namespace heteroperf
