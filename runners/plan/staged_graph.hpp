#pragma once

#include <vector>

#include "runners/plan/plan.hpp"
#include "workloads/graph/model_graph.hpp"
#include "workloads/recipe.hpp"

namespace heteroperf {

/// The training that a plan spreads over ranks. `graph` outlives it.
struct TrainingTask {
  const ModelGraph& graph;
  Precision precision = Precision::fp32;
  OptimizerKind optimizer = OptimizerKind::adamw;
};

/// Tensors that go from one stage to a later one, per micro-batch: the outputs of `nodes`. Data are
/// not among them, since every stage reads what it needs of its samples.
struct StageEdge {
  StageId from, to;
  std::vector<NodeId> nodes;          ///< in the order of the graph
  std::vector<NodeId> with_gradient;  ///< the part whose gradient comes back; may be empty
};

/// A model graph cut into the stages of a plan.
struct StagedGraph {
  std::vector<StageId> stage_of;                 ///< by node
  IdVector<StageId, std::vector<NodeId>> nodes;  ///< in the order of the graph
  std::vector<StageEdge> edges;                  ///< by (from, to)
  /// Stages that hold a copy of one weight each (a tied head away from its embedding): the owner
  /// first.
  struct Tied {
    NodeId owner;  ///< the embedding
    std::vector<StageId> stages;
  };
  std::vector<Tied> tied;

  int stages() const { return static_cast<int>(nodes.size()); }
};

/// Throws UserError with everything wrong: unknown nodes, nodes in no stage or in two, an edge that
/// goes back to an earlier stage, a stage without nodes, a stage without a way to the loss.
StagedGraph cut_graph(const ModelGraph& graph, const Plan& plan);

/// Nothing before the node is trained, because it is frozen: no gradient comes back to it.
inline bool is_frozen(const Node& node) {
  return node.weights == Weights::frozen && !node.differentiable;
}

/// ModelGraph::consumers() of every node, in one pass over the graph.
std::vector<std::vector<NodeId>> all_consumers(const ModelGraph& graph);

/// The tensors, by the nodes that make them, that are needed beyond each place of a graph's order,
/// without the data: [number of nodes before the place]; none at both ends, and none right behind
/// an input, which belongs to the nodes that follow.
std::vector<std::vector<NodeId>> crossing_tensors(const ModelGraph& graph);

/// By node: the number of nodes up to the last one of its own component that uses it; beyond that
/// place it waits for other components at most. 0 where none uses it.
std::vector<std::size_t> ends_of_own_use(const ModelGraph& graph);

}  // namespace heteroperf
