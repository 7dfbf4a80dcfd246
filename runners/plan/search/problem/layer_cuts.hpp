#pragma once

#include <cstddef>
#include <vector>

#include "workloads/graph/model_graph.hpp"

namespace heteroperf {

/// Ends of the layers of a graph, in nodes: every place of its order that one tensor with a
/// gradient crosses alone, no wider than `widest` times the median such place's.
/// The last end is the number of nodes. The list is ascending.
std::vector<std::size_t> layer_ends(const ModelGraph& graph, double widest = 4);

/// Equal numbers for layers of equal nodes with equal inputs: they cost the same.
/// The result has a number for each layer, from 0 in the order of their first appearance.
std::vector<int> layer_kinds(const ModelGraph& graph, const std::vector<std::size_t>& ends);

}  // namespace heteroperf
