// This file finds the tensors that a tensor-parallel rank keeps by rows.
//
// Between the layers that the ranks share, norms and sums would be done by every rank on whole
// tensors. With sequence parallelism each rank does its rows: less memory and less work, for the
// same bytes on the wire, since an all-reduce is a reduce-scatter and an all-gather. A tensor may
// be kept by rows only where all its users work on rows, and a node works on rows only where all
// its inputs are kept so. The search starts with everything that could and takes back what
// contradicts, until nothing changes; what remains is the largest such set.
#include "runners/plan/tensor/row_cuts.hpp"

#include <algorithm>
#include <variant>

#include "metrics/base/id.hpp"

namespace heteroperf {
namespace {

/// Only {positions, width} tensors that are whole on every rank have rows to share.
bool is_rows(const TensorShard& shard, std::size_t n) {
  const Node& node = shard.graph.nodes()[n];
  return node.output.size() == 2 && node.differentiable && !shard.output_is_sharded[n];
}

/// The engine runs a linear that is whole and the sum behind it as one operation.
bool may_fuse(const TensorShard& shard, std::size_t n) {
  const std::vector<Node>& nodes = shard.graph.nodes();
  return std::ranges::any_of(nodes[n].inputs, [&](NodeId input) {
    return std::holds_alternative<Linear>(nodes[input.index()].attributes) &&
           !shard.output_is_partial[input.index()];
  });
}

bool goes_row_by_row(const TensorShard& shard, std::size_t n) {
  const Attributes& kind = shard.graph.nodes()[n].attributes;
  const bool row_wise = std::holds_alternative<LayerNorm>(kind) ||
                        std::holds_alternative<RmsNorm>(kind) ||
                        (std::holds_alternative<Add>(kind) && !may_fuse(shard, n));
  return row_wise && is_rows(shard, n);
}

}  // namespace

bool RowCuts::any() const { return std::ranges::find(keeps, true) != keeps.end(); }

/// Begins with all that could work on rows, and takes back what another's need forbids until
/// nothing changes.
RowCuts row_cuts(const TensorShard& shard, const std::vector<StageId>& stage_of, StageId stage) {
  const std::vector<Node>& nodes = shard.graph.nodes();
  RowCuts cuts{std::vector<bool>(nodes.size()), std::vector<bool>(nodes.size())};
  std::vector<std::vector<std::size_t>> users(nodes.size());  // by node: those in the stage
  for (std::size_t n = 0; n < nodes.size(); ++n) {
    if (stage_of[n] != stage) continue;
    for (const NodeId input : nodes[n].inputs) users[input.index()].push_back(n);
    cuts.works[n] = goes_row_by_row(shard, n);
  }
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t n = 0; n < nodes.size(); ++n) {
      const bool all = std::ranges::all_of(users[n], [&](std::size_t u) { return cuts.works[u]; });
      cuts.keeps[n] = !users[n].empty() && all && is_rows(shard, n);
      if (cuts.keeps[n]) continue;
      for (const std::size_t user : users[n]) {
        changed = changed || cuts.works[user];
        cuts.works[user] = false;
      }
    }
  }
  return cuts;
}

RowRangeOfRank rows_of_rank(std::int64_t rows, int index, int degree) {
  const std::int64_t first = rows * index / degree;
  return {first, rows * (index + 1) / degree - first};
}

}  // namespace heteroperf
