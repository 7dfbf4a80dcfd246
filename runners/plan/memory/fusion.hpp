#pragma once

#include <optional>
#include <vector>

#include "runners/plan/tensor/tensor_parallel.hpp"
#include "workloads/graph/model_graph.hpp"

namespace heteroperf {

enum class Fusion { off, on };

/// The chains of nodes that run as one operation. The planner counts their time and memory and the
/// engine runs them, both from fuse_nodes().
enum class FusedKind {
  single,  ///< one node by itself
  linear_gelu,
  linear_residual,  ///< a linear and the sum of its output and a second input
  batch_norm_relu,
  batch_norm_residual_relu,  ///< as before, with a second input added before the ReLU
  add_relu,
  swiglu,               ///< SiLU of the first input, times the second
  embedding_positions,  ///< a token table and the table of learned positions
  loss_over_logits,     ///< one node: the logits are used by nothing else and may be overwritten
};

/// Nodes that run as one operation. Every node but the last has the chain's other nodes as its only
/// consumers, so the last node's output is the only one that exists.
struct FusedNodes {
  FusedKind kind = FusedKind::single;
  std::vector<NodeId> nodes;   ///< in topological order
  std::vector<NodeId> inputs;  ///< nodes outside the chain, in the order the operation takes them
};

/// The part of a graph that is fused. Everything pointed at outlives the call.
struct FusionScope {
  /// The stage of every node: nodes of different stages share no chain. Null: there is one stage.
  const std::vector<StageId>* stage_of = nullptr;
  /// With `stage_of`: only the nodes of this stage are given.
  std::optional<StageId> stage;
  /// With a degree above 1 the graph is this shard's local graph, and a chain ends at every node
  /// behind which the ranks of the group add up an output or a gradient.
  const TensorShard* shard = nullptr;
};

/// Every node of the scope but the graph's input, in chains, in topological order of their last
/// nodes. `Fusion::off` gives every node by itself.
std::vector<FusedNodes> fuse_nodes(const ModelGraph& graph, const FusionScope& scope = {},
                                   Fusion fusion = Fusion::on);

}  // namespace heteroperf
