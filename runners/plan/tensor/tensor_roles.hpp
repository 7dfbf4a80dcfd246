#pragma once

#include <cstdint>
#include <vector>

#include "workloads/graph/model_graph.hpp"

namespace heteroperf {

/// The role of the ranks of a tensor-parallel group in a node.
enum class TensorRole {
  whole,       ///< the same on every rank
  column,      ///< linear: some columns of its output, of a whole input
  row,         ///< linear: of some columns of its input; the outputs add up
  local,       ///< works on its part of its inputs (activations, attention, the loss)
  vocabulary,  ///< embedding: some rows of its table; the outputs add up
};

/// Heads packed along the last dimension: queries, keys, values. Without heads: plain columns.
struct HeadPacking {
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0;
  bool plain() const { return heads == 0; }
  friend bool operator==(const HeadPacking&, const HeadPacking&) = default;
};

/// The lists have an entry for each node of the full graph.
struct TensorRoles {
  std::vector<TensorRole> role;      ///< by node
  std::vector<HeadPacking> packing;  ///< by node, of an output that is cut

  /// True when a rank holds some columns of the node's output only.
  bool cuts_output(NodeId node) const {
    const TensorRole r = role[node.index()];
    return r == TensorRole::column || r == TensorRole::local;
  }
};

/// The layers that `degree` ≥ 2 ranks share: every linear keeps some of its output columns when all
/// that follows, up to a linear or the loss, can work on columns; otherwise it stays whole, as do
/// tables and layers with fewer rows or columns than ranks. Throws UserError with everything wrong
/// (see tensor_shard).
TensorRoles find_tensor_roles(const ModelGraph& graph, int degree);

}  // namespace heteroperf
