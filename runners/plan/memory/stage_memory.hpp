#pragma once

#include <cstdint>

#include "runners/plan/plan.hpp"
#include "runners/plan/staged_graph.hpp"
#include "runners/plan/tensor/row_cuts.hpp"
#include "runners/plan/tensor/tensor_parallel.hpp"
#include "workloads/recipe.hpp"

namespace heteroperf {

/// The bytes that one micro-batch takes on one rank of a stage: between its passes, and at the
/// fullest moment of each. README.md has the rules.
struct StageMemory {
  std::uint64_t after_forward = 0;         ///< kept from F on
  std::uint64_t after_recompute = 0;       ///< kept from RECOMPUTE on
  std::uint64_t after_input_gradient = 0;  ///< kept between B and W
  /// At most during a pass, all that is kept of this micro-batch and what it received included.
  std::uint64_t forward = 0, recompute = 0, input_gradient = 0, weight_gradient = 0, backward = 0;
  std::uint64_t outputs = 0;  ///< for other stages, beside what is kept
};

/// A stage on one rank of a replica that takes `samples` of every micro-batch.
struct StagePart {
  const StagedGraph& staged;
  StageId stage;
  const TensorShard& shard;
  std::int64_t samples = 1;
  Recomputation recomputation = Recomputation::none;
  bool sequence_parallel = false;

  /// Which of the stage's tensors are kept by rows.
  RowCuts rows() const;
};

/// All results are bytes of one rank. Parameters, their gradients and states are not among them.
StageMemory stage_memory(const StagePart& part, Precision precision);

}  // namespace heteroperf
