#pragma once

#include "metrics/base/hash.hpp"
#include "workloads/model_graph.hpp"

namespace heteroperf {

/// Identity of a graph up to names, branches and the order of independent nodes.
///
/// Every node's label starts from its kind, attributes and shape, and is refined along the edges:
/// forward (labels of its inputs, in order), backward (labels and slots of its consumers), forward
/// again. The graph's hash is that of the sorted labels, so nodes that look alike from the input
/// but are used differently still tell graphs apart.
Hash128 graph_hash(const ModelGraph& graph);

}  // namespace heteroperf
