#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "metrics/base/id.hpp"
#include "workloads/graph/node_kinds.hpp"

namespace heteroperf {

/// The extents of one sample's tensor; the batch dimension is never part of it. Images are
/// {channels, height, width}, token sequences {length}, their features {length, width}.
using Shape = std::vector<std::int64_t>;

/// Returns the product of the extents.
std::int64_t element_count(const Shape& shape);
/// Writes "{3, 224, 224}".
std::string to_string(const Shape& shape);

/// A tensor of a node that training changes, unless the node is frozen. `shape` is LibTorch's
/// (linear: {out, in}; conv2d: {out, in / groups, kh, kw}).
struct Parameter {
  std::string name;  ///< "weight" or "bias"
  Shape shape;
};

/// Says if training changes a node's tensors. Frozen ones have no gradient and no optimizer state.
enum class Weights { trained, frozen };

/// An operation on the tensors of earlier nodes.
struct Node {
  std::string name;  ///< unique in its graph and stable: checkpoints and reports use it
  Attributes attributes;
  std::vector<NodeId> inputs;
  std::string branch = "main";  ///< the nodes of one branch form one pipeline; edges may cross
  Weights weights = Weights::trained;
  Shape output;  ///< inferred by ModelGraph
  /// The tensors that this node owns; empty for a node whose weight is tied to another's.
  std::vector<Parameter> parameters;
  /// True where a trained tensor lies here or before, so that the output has a gradient (inferred).
  /// A node whose inputs are all false needs no input gradient (the first convolution).
  bool differentiable = false;
  /// The input whose items, and not the samples, the batch of the output counts (inferred).
  std::optional<NodeId> items;
};
/// Counts the elements of the tensors that the node owns.
std::uint64_t parameter_count(const Node& node);
/// Counts those that training changes.
std::uint64_t trained_parameter_count(const Node& node);

/// A model: nodes in topological order, each with inferred shapes. This one object is behind the
/// operation counts, the memory model, the partition into stages and the operators that run.
class ModelGraph {
 public:
  /// Appends a node, and infers and checks its shapes. Throws UserError naming the node, the
  /// offending shapes and what was expected.
  NodeId add(std::string name, Attributes attributes, std::vector<NodeId> inputs,
             std::string branch = "main", Weights weights = Weights::trained);

  std::string name;  ///< the model's name; not part of the hash

  const std::vector<Node>& nodes() const { return nodes_; }
  /// Throws UserError when there is no node of this number.
  const Node& node(NodeId id) const;
  /// Throws UserError when no node has this name.
  NodeId find(std::string_view node_name) const;
  /// Returns the nodes that take `id` as an input, in order.
  std::vector<NodeId> consumers(NodeId id) const;
  /// Returns the loss, the last node. Throws UserError when the graph has none.
  NodeId loss() const;
  /// Returns the `input` nodes, in order.
  std::vector<NodeId> inputs() const;
  /// Returns the single `input` node. Throws UserError when the graph has none, or several.
  NodeId input() const;

  /// Counts the elements of the tensors of all nodes.
  std::uint64_t parameter_count() const;
  /// Counts those that training changes.
  std::uint64_t trained_parameter_count() const;

  /// Returns 32 hexadecimal digits over structure, attributes and shapes, equal on every machine.
  /// Names, branches and the order of independent nodes do not enter.
  std::string hash() const;

 private:
  std::vector<Node> nodes_;
};

/// Tells if training changes a weight that the node multiplies with: its own, or the one that its
/// own is tied to.
bool has_trained_weight(const ModelGraph& graph, const Node& node);

/// Returns the model with the weights of some components frozen: `components` are branches, with
/// commas between. Throws UserError for those that it lacks, and where nothing is left to train.
ModelGraph with_frozen(const ModelGraph& graph, const std::string& components);

}  // namespace heteroperf
