#pragma once

#include <string>
#include <vector>

#include "workloads/model_graph.hpp"

namespace heteroperf {

/// What a node's kind makes of its inputs.
struct InferredShapes {
  Shape output;
  std::vector<Parameter> parameters;
};

/// Checks the attributes' values, the number of inputs and their shapes. `graph` holds the nodes
/// before this one (for a tied weight). Throws UserError with every problem found, each naming the
/// node, the offending values and what was expected.
InferredShapes infer_shapes(const std::string& node_name, const Attributes& attributes,
                            const std::vector<const Node*>& inputs, const ModelGraph& graph);

}  // namespace heteroperf
