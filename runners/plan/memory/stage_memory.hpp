#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runners/plan/memory/fusion.hpp"
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

  /// The samples, or at most so many items, that a node is computed for.
  std::int64_t count(const Node& node) const;
  /// Which of the stage's tensors are kept by rows.
  RowCuts rows() const;
};

/// All results are bytes of one rank. Parameters, their gradients and states are not among them.
StageMemory stage_memory(const StagePart& part, Precision precision);

/// Nodes that the engine runs as one operation (runners/engine/operators/README.md, Fusion), and
/// what that keeps for the gradients.
struct MemoryGroup {
  std::vector<std::size_t> nodes;   ///< the last one's output exists
  std::vector<std::size_t> inputs;  ///< nodes outside
  std::vector<std::size_t> saved;   ///< tensors, by the node that made them
  std::uint64_t saved_alone = 0;    ///< bytes of statistics, indices, masks
  std::uint64_t recomputed = 0;     ///< the part that the backward pass makes again (selective)
  bool parameters = false;
  bool differentiable = false;
  enum class Gives {
    own,        ///< gradients of its inputs are tensors of their own
    same,       ///< its output's gradient, handed on
    in_place,   ///< added to what is there, where nobody else holds that
    overwrite,  ///< the logits' memory becomes their gradient
    none,
  } gives = Gives::own;
  bool passes_residual = false;         ///< the second input gets the output's gradient itself
  std::uint64_t forward_temporary = 0;  ///< bytes of a forward pass, beside the output
  std::uint64_t temporary = 0;          ///< bytes of B, beside the gradients it gives
  std::uint64_t weight_temporary = 0;   ///< bytes of W
};

/// The chains of a stage's nodes, in the order in which they run; `input` is in none.
std::vector<FusedNodes> fused_nodes(const StagePart& part);

/// The groups of one stage, in the order in which they run.
/// The same chains in the same order as fused_nodes().
std::vector<MemoryGroup> memory_groups(const StagePart& part, Precision precision);

}  // namespace heteroperf
