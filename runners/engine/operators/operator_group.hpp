#pragma once

#include <memory>
#include <vector>

#include "runners/engine/operators/operator.hpp"

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

}  // namespace heteroperf
