#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "metrics/base/quantity.hpp"
#include "workloads/node_attributes.hpp"

namespace heteroperf {

/// Extents of one sample's tensor; the batch dimension is never part of it.
/// Images are {channels, height, width}; token sequences {length}; their features {length, width}.
using Shape = std::vector<std::int64_t>;

std::int64_t element_count(const Shape& shape);
std::string to_string(const Shape& shape);

/// One trainable tensor of a node. `shape` is LibTorch's (linear: {out, in}; conv2d: {out, in /
/// groups, kh, kw}).
struct Parameter {
  std::string name;  ///< "weight" or "bias"
  Shape shape;
};

/// One operation on the tensors of earlier nodes.
struct Node {
  std::string name;  ///< unique in its graph, stable: checkpoints and reports use it
  Attributes attributes;
  std::vector<NodeId> inputs;
  std::string branch = "main";  ///< nodes of one branch form one pipeline; edges may cross
  Shape output;                 ///< inferred by ModelGraph
  /// Tensors this node owns; empty for a node whose weight is tied to another's.
  std::vector<Parameter> parameters;
  /// Inferred: a trainable tensor lies here or before, so the output has a gradient. A node whose
  /// inputs are all false needs no input gradient (the first convolution).
  bool differentiable = false;
};

/// A model: nodes in topological order, each with inferred shapes. The one object behind operation
/// counts, the memory model, the partition into stages and the operators that run.
class ModelGraph {
 public:
  /// Appends a node; infers and checks shapes. Throws UserError naming the node, the offending
  /// shapes and what was expected.
  NodeId add(std::string name, Attributes attributes, std::vector<NodeId> inputs,
             std::string branch = "main");

  std::string name;  ///< the model's name; not part of the hash

  const std::vector<Node>& nodes() const { return nodes_; }
  const Node& node(NodeId id) const;
  /// Throws UserError when no node has this name.
  NodeId find(std::string_view node_name) const;
  /// Nodes that take `id` as an input, in order.
  std::vector<NodeId> consumers(NodeId id) const;
  /// The loss (the last node, a cross_entropy). Throws UserError when the graph has none.
  NodeId loss() const;
  /// The single `input` node.
  NodeId input() const;

  std::uint64_t parameter_count() const;

  /// 32 hexadecimal digits over structure, attributes and shapes; names, branches and the order of
  /// independent nodes do not enter. Equal on every machine.
  std::string hash() const;

 private:
  std::vector<Node> nodes_;
};

}  // namespace heteroperf
