#pragma once

#include <cstdint>
#include <vector>

#include "runners/plan/tensor/tensor_parallel.hpp"

namespace heteroperf {

/// Sequence parallelism (Korthikanti et al. 2022, arXiv:2205.05198, section 4.2.2): what plain
/// tensor parallelism does alike on every rank, norms and sums between the layers that are cut,
/// each rank does on its own rows (the positions of all samples, one after another). Of R rows rank
/// i of t has [⌊i·R/t⌋, ⌊(i + 1)·R/t⌋). Empty vectors: nothing is cut by rows.
struct RowCuts {
  std::vector<bool> works;  ///< by node: on this rank's rows alone
  /// By node: ranks keep their rows of its output, made in the stage or received. All that takes it
  /// there works on rows, so gradients of it are of these rows too.
  std::vector<bool> keeps;

  /// True when at least one tensor is kept by rows.
  bool any() const;
};

/// The nodes of one stage that work on rows: layer norms, RMS norms and sums of whole {positions,
/// width} tensors work on rows where all their inputs are kept by rows, and a tensor is kept by
/// rows where all that takes it works on rows.
RowCuts row_cuts(const TensorShard& shard, const std::vector<StageId>& stage_of, StageId stage);

/// Rows of `index` among `degree` ranks.
struct RowRangeOfRank {
  std::int64_t first = 0, count = 0;
};
RowRangeOfRank rows_of_rank(std::int64_t rows, int index, int degree);

}  // namespace heteroperf
