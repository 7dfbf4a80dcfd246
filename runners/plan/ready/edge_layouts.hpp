#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runners/cluster/layout.hpp"
#include "runners/plan/ready/ready_plan.hpp"
#include "runners/plan/tensor/tensor_parallel.hpp"

namespace heteroperf {

/// The two things that cross an edge: outputs forward, and their gradients back.
enum class Crossing { activation, gradient };

/// A tensor that crosses from the ranks of one stage to those of another.
struct EdgeTensor {
  NodeId node;
  Layout from, to;  ///< a micro-batch over all replicas
  /// The component that it leaves for another one (components_of()); nothing: it stays in its own.
  std::optional<std::size_t> leaves;
};

/// Finds the tensors that cross an edge of a plan's schedule, and the parts in which either side
/// has them: replicas have different shares of the batch or parts of its sequences, tensor-parallel
/// ranks different columns.
class EdgeLayouts {
 public:
  /// Both outlive the object; `ready` is a plan for `graph`.
  EdgeLayouts(const ModelGraph& graph, const ReadyPlan& ready);

  /// The nodes whose outputs, or whose gradients, cross.
  const std::vector<NodeId>& nodes(EdgeId edge, Crossing what) const;
  /// The replicas of a segment's stage, in its direction of the pipeline.
  std::vector<const StageReplica*> replicas_of(SegmentId segment) const;
  /// In the order of nodes(), for batches of so many samples; replicas whose share begins at or
  /// beyond `batch` take no part. `first_item`: where samples have any number of items, those
  /// before each sample, and behind them all; empty: they have the most. Throws UserError for a cut
  /// layer's output that the two sides, or replicas of one side, hold in parts that do not fit.
  std::vector<EdgeTensor> of(EdgeId edge, Crossing what, std::int64_t batch,
                             std::span<const std::int64_t> first_item = {});
  /// Some of them have a row for each item.
  bool has_items(EdgeId edge, Crossing what) const;

 private:
  using Replicas = std::vector<const StageReplica*>;
  const StageEdge& planned(EdgeId edge) const;
  std::int64_t most_rows(NodeId node) const;
  std::optional<std::size_t> component_left(EdgeId edge, Crossing what, NodeId node) const;
  std::vector<std::int64_t> widths_of(NodeId node, const Replicas& replicas);
  SequenceRole role_of(NodeId node, const Replicas& replicas);
  void check_columns(NodeId node, const Replicas& from, const Replicas& to);

  const ModelGraph& graph_;
  const ReadyPlan& ready_;
  ShardTable shards_;                      ///< other ranks' too: an edge has two sides
  std::vector<std::size_t> component_of_;  ///< by node
};

}  // namespace heteroperf
