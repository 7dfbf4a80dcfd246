#pragma once

#include <vector>

#include "workloads/graph/model_graph.hpp"
#include "workloads/graph/sequence_part.hpp"

namespace heteroperf {

/// A context-parallel rank's share of a node's output.
enum class SequenceRole {
  whole,   ///< all of it, as every other rank: each makes it
  part,    ///< the positions of its part
  pooled,  ///< a vector for each sample, made of a row: the rank with the first part alone has them
};

/// By node, for the ranks with parts like this one; where it is the whole, everything is.
std::vector<SequenceRole> sequence_roles(const ModelGraph& graph, const SequencePart& part);

/// The order in which context-parallel ranks of a stage with these nodes deal positions: patches
/// where these are of pictures alone, else zig-zag.
SequenceOrder usual_order(const ModelGraph& graph, const std::vector<NodeId>& nodes);

}  // namespace heteroperf
