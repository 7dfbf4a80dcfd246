#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runners/plan/memory/stage_memory.hpp"

namespace heteroperf {

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
  bool passes_residual = false;        ///< the second input gets the output's gradient itself
  std::uint64_t temporary = 0;         ///< bytes of B, beside the gradients it gives
  std::uint64_t weight_temporary = 0;  ///< bytes of W
};

/// The nodes of each group of a stage, in the order in which they run; `input` is in none.
std::vector<std::vector<std::size_t>> fused_nodes(const StagePart& part);

/// The groups of one stage, in the order in which they run.
/// The same chains in the same order as fused_nodes().
std::vector<MemoryGroup> memory_groups(const StagePart& part, Precision precision);

}  // namespace heteroperf
