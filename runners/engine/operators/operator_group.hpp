#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "runners/comm/communicator.hpp"
#include "runners/engine/operators/operator.hpp"
#include "runners/plan/tensor_parallel.hpp"

namespace heteroperf {

/// One or more nodes of a graph that one Operator runs (linear + gelu, batch_norm + relu, …).
/// Every node but the last has the group's other nodes as its only consumers, so only the last
/// one's output exists.
struct OperatorGroup {
  std::vector<NodeId> nodes;   ///< in topological order; the last gives the group its output
  std::vector<NodeId> inputs;  ///< nodes outside the group, in the order the operator takes them
  /// (node, index in Node::parameters) of each parameter, in the operator's order. A tied linear
  /// names the embedding that owns the weight.
  std::vector<std::pair<NodeId, std::size_t>> parameters;
  std::unique_ptr<Operator> op;
};

enum class Fusion { off, on };

/// Every node but `input`, in topological order. The cross_entropy group takes the targets
/// (int64 {B} or {B, T}) as one more input tensor behind `inputs`. `Fusion::off` gives one group
/// per node: the reference the fused form is tested against.
std::vector<OperatorGroup> make_operator_groups(const ModelGraph& graph, at::ScalarType type,
                                                Fusion fusion = Fusion::on);

/// What a rank of a plan runs of a graph. Everything pointed at outlives the groups.
struct GroupingRules {
  /// By node: nodes of different stages share no group.
  const std::vector<int>* stage_of = nullptr;
  /// With `stage_of`: the nodes of this stage alone.
  std::optional<int> stage;
  /// Then the graph is its local one. Where a sum over the ranks is due behind a node, the node is
  /// the last of its group; embedding and loss know their part of the vocabulary; a consumer that
  /// does not split a node whose gradient is partial within the stage gives it none but on index 0.
  const TensorShard* shard = nullptr;
  /// The ranks that share the layers, for the loss. Needed when the loss is cut.
  Communicator* tensor_group = nullptr;
};

/// The groups of those nodes, in topological order.
std::vector<OperatorGroup> make_operator_groups(const ModelGraph& graph, at::ScalarType type,
                                                Fusion fusion, const GroupingRules& rules);

}  // namespace heteroperf
