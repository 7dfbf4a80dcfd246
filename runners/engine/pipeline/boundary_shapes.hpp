#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "runners/engine/pipeline/boundary.hpp"
#include "runners/plan/tensor_parallel.hpp"

namespace heteroperf {

/// What crosses a border between two stages, and in which parts either side holds it.
class BoundaryShapes {
 public:
  using Replicas = std::vector<const StageReplica*>;
  /// `graph`: the full model's; it stays. `type`: of what its operators make.
  BoundaryShapes(const ModelGraph& graph, at::ScalarType type) : graph_(graph), type_(type) {}

  /// Outputs of `nodes`, from the replicas of one stage to those of another. Throws UserError for a
  /// cut layer's output that the two sides, or replicas of one, hold in parts that do not fit.
  BoundaryEnd::Shape of(const std::vector<NodeId>& nodes, std::int64_t batch, const Replicas& from,
                        const Replicas& to);

 private:
  const TensorShard& shard_of(int degree, int index);
  std::vector<std::int64_t> widths_of(NodeId node, const Replicas& replicas);
  void check_columns(NodeId node, const BoundaryEnd::Lane& lane, const Replicas& from,
                     const Replicas& to);

  const ModelGraph& graph_;
  at::ScalarType type_;
  std::deque<TensorShard> shards_;  ///< of any rank, as they were needed
};

}  // namespace heteroperf
