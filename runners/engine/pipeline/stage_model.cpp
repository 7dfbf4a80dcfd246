#include "runners/engine/pipeline/stage_model.hpp"

#include "metrics/base/quantity.hpp"

namespace heteroperf {
StageModel whole_model(const ModelGraph& graph, at::ScalarType type, Fusion fusion) {
  StageModel model{graph, make_operator_groups(graph, type, fusion), {}, {}, {}, {}, {}, {}, {},
                   {}};
  model.edges_out.resize(graph.nodes().size());
  return model;
}

StageModel stage_model(const RankShare& share, const RankShare::Part& part,
                       const StagedGraph& staged, const Plan& plan, at::ScalarType type,
                       Communicator* tensor_group) {
  const TensorShard& shard = share.shards[part.shard];
  const int stage = part.role.stage;
  const bool cut = shard.degree > 1;
  GroupingRules rules;
  rules.stage_of = &staged.stage_of;
  rules.stage = stage;
  rules.shard = cut ? &shard : nullptr;
  rules.tensor_group = tensor_group;
  StageModel model{shard.graph,
                   make_operator_groups(shard.graph, type, Fusion::on, rules),
                   std::vector<int>(shard.graph.nodes().size()),
                   plan.stages[at_index(stage)].recomputation,
                   cut ? tensor_group : nullptr,
                   shard.output_is_partial,
                   gradient_is_partial_within(shard, staged.stage_of, stage),
                   shard.output_is_sharded,
                   shard.first_of_vocabulary,
                   {}};
  if (plan.sequence_parallel && cut) model.rows = row_cuts(shard, staged.stage_of, stage);
  for (const StageEdge& edge : staged.edges) {
    if (edge.from != stage) continue;
    for (const NodeId node : edge.nodes) {
      // The sample is not made by the stage: it is handed on, not taken out.
      if (node != shard.graph.input()) ++model.edges_out[at_index(node.value())];
    }
  }
  return model;
}

}  // namespace heteroperf
