#pragma once

#include <cstdint>
#include <vector>

#include "runners/engine/operators/operator_group.hpp"
#include "runners/engine/parameters/rank_share.hpp"
#include "runners/plan/plan.hpp"
#include "runners/plan/row_cuts.hpp"
#include "runners/plan/staged_graph.hpp"

namespace heteroperf {

class Communicator;

/// What a rank runs of a model: the groups of one stage, on one rank's share of every layer.
struct StageModel {
  const ModelGraph& graph;  ///< this rank's own: local sizes; outlives the executor
  std::vector<OperatorGroup> groups;
  /// By node: how many edges lead from it to other stages.
  std::vector<int> edges_out;
  Recomputation recomputation = Recomputation::none;
  /// Null, or this rank's place in a tensor-parallel group: what TensorShard says of each node.
  Communicator* tensor_group = nullptr;
  std::vector<bool> output_is_partial, gradient_is_partial, output_is_sharded;
  std::vector<std::int64_t> first_of_vocabulary;
  RowCuts rows;  ///< sequence parallelism; nothing without it
};

/// The whole graph as one stage.
StageModel whole_model(const ModelGraph& graph, at::ScalarType type, Fusion fusion);

/// The stage of `part`, one of the parts of `share`, which outlives the model.
StageModel stage_model(const RankShare& share, const RankShare::Part& part,
                       const StagedGraph& staged, const Plan& plan, at::ScalarType type,
                       Communicator* tensor_group);

}  // namespace heteroperf
