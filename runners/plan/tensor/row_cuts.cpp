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

/// Begins with all that could work on rows, and takes back what another's need forbids until
/// nothing changes.
class RowCutter {
 public:
  RowCutter(const TensorShard& shard, const std::vector<StageId>& stage_of, StageId stage)
      : shard_(shard), nodes_(shard.graph.nodes()), stage_of_(stage_of), stage_(stage) {
    users_.resize(nodes_.size());
    cuts_.works.resize(nodes_.size());
    cuts_.keeps.resize(nodes_.size());
    for (std::size_t n = 0; n < nodes_.size(); ++n) {
      if (stage_of_[n] != stage_) continue;
      for (const NodeId input : nodes_[n].inputs) users_[input.index()].push_back(n);
      cuts_.works[n] = goes_row_by_row(n);
    }
  }

  RowCuts run() {
    for (bool changed = true; changed;) {
      changed = false;
      for (std::size_t n = 0; n < nodes_.size(); ++n) changed = settle(n) || changed;
    }
    return std::move(cuts_);
  }

 private:
  /// Only {positions, width} tensors that are whole on every rank have rows to share.
  bool is_rows(std::size_t n) const {
    return nodes_[n].output.size() == 2 && nodes_[n].differentiable && !shard_.output_is_sharded[n];
  }

  bool goes_row_by_row(std::size_t n) const {
    const Attributes& kind = nodes_[n].attributes;
    const bool row_wise = std::holds_alternative<LayerNorm>(kind) ||
                          std::holds_alternative<RmsNorm>(kind) ||
                          (std::holds_alternative<Add>(kind) && !may_fuse(n));
    return row_wise && is_rows(n);
  }

  /// The engine runs a linear that is whole and the sum behind it as one operation.
  bool may_fuse(std::size_t n) const {
    return std::ranges::any_of(nodes_[n].inputs, [&](NodeId input) {
      return std::holds_alternative<Linear>(nodes_[input.index()].attributes) &&
             !shard_.output_is_partial[input.index()];
    });
  }

  bool settle(std::size_t n) {
    const std::vector<std::size_t>& users = users_[n];
    const bool all =
        std::ranges::all_of(users, [&](std::size_t user) { return cuts_.works[user]; });
    cuts_.keeps[n] = !users.empty() && all && is_rows(n);
    if (cuts_.keeps[n]) return false;
    bool changed = false;
    for (const std::size_t user : users) {
      changed = changed || cuts_.works[user];
      cuts_.works[user] = false;
    }
    return changed;
  }

  const TensorShard& shard_;
  const std::vector<Node>& nodes_;
  const std::vector<StageId>& stage_of_;
  StageId stage_;
  std::vector<std::vector<std::size_t>> users_;  ///< by node: those in the stage
  RowCuts cuts_;
};

}  // namespace

bool RowCuts::any() const { return std::ranges::find(keeps, true) != keeps.end(); }

RowCuts row_cuts(const TensorShard& shard, const std::vector<StageId>& stage_of, StageId stage) {
  return RowCutter(shard, stage_of, stage).run();
}

RowRangeOfRank rows_of_rank(std::int64_t rows, int index, int degree) {
  const std::int64_t first = rows * index / degree;
  return {first, rows * (index + 1) / degree - first};
}

}  // namespace heteroperf
