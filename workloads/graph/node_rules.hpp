#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "metrics/operator_counts.hpp"
#include "workloads/graph/model_graph.hpp"

namespace heteroperf {

/// The output and the parameters that a node's kind makes of its inputs.
struct InferredShapes {
  Shape output;
  std::vector<Parameter> parameters;
  std::optional<NodeId> items = {};  ///< Node::items
};

/// Checks the attributes' values, the number of inputs and their shapes, and infers the node's own.
/// `graph` holds the nodes before this one (for a tied weight). Throws UserError with every
/// problem, each naming the node, the offending values and what was expected.
InferredShapes infer_shapes(const std::string& node_name, const Attributes& attributes,
                            const std::vector<const Node*>& inputs, const ModelGraph& graph);

/// The elements of all windows along one axis of an image that do not lie in the padding around it.
std::int64_t taps_inside(std::int64_t image, std::int64_t kernel, std::int64_t stride,
                         std::int64_t padding);

/// Returns the operator that counts for a node of the graph, with its shapes for one sample, or for
/// one item where the node works on those. A contrastive loss is over `contrasted` samples.
OperatorShape operator_shape(const ModelGraph& graph, const Node& node,
                             std::uint64_t contrasted = 1);

/// The tensors that an operator keeps from forward for backward (the table of workloads/README.md).
struct KeptTensors {
  bool inputs = false;
  bool output = false;
  std::int64_t statistics_per_sample = 0;  ///< fp32 numbers
  std::int64_t statistics_per_batch = 0;   ///< fp32 numbers
  std::int64_t indices_per_sample = 0;     ///< 8-byte indices
};
KeptTensors kept_tensors(const ModelGraph& graph, const Node& node);

}  // namespace heteroperf
