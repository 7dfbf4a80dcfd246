#include "runners/engine/pipeline/boundary_shapes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <variant>

#include "metrics/base/error.hpp"
#include "metrics/base/quantity.hpp"

namespace heteroperf {
const TensorShard& BoundaryShapes::shard_of(int degree, int index) {
  for (const TensorShard& known : shards_) {
    if (known.degree == degree && known.index == index) return known;
  }
  shards_.push_back(tensor_shard(graph_, degree, index));
  return shards_.back();
}

/// Widths of a node's output on the ranks of a replica; empty where all have it whole.
std::vector<std::int64_t> BoundaryShapes::widths_of(NodeId id, const Replicas& replicas) {
  std::vector<std::int64_t> widths;
  const std::size_t degree = replicas.front()->ranks.size();
  if (std::all_of(replicas.begin(), replicas.end(),
                  [](const StageReplica* r) { return r->ranks.size() == 1; })) {
    return widths;
  }
  for (const StageReplica* replica : replicas) {
    if (replica->ranks.size() == degree) continue;
    if (degree > 1 &&
        !shard_of(static_cast<int>(degree), 0).output_is_sharded[at_index(id.value())]) {
      continue;
    }
    throw UserError(fmt::format("the output of '{}' crosses a stage border in parts that replicas "
                                "of {} and of {} ranks have cut differently",
                                graph_.node(id).name, degree, replica->ranks.size()),
                    "a stage's replicas must hold it alike",
                    "Cut the model where the layer's output is summed, or give the replicas the "
                    "same number of ranks");
  }
  for (std::size_t i = 0; i < degree; ++i) {
    const TensorShard& shard = shard_of(static_cast<int>(degree), static_cast<int>(i));
    if (!shard.output_is_sharded[at_index(id.value())]) return {};
    widths.push_back(shard.graph.node(id).output.back());
  }
  return widths;
}

BoundaryEnd::Shape BoundaryShapes::of(const std::vector<NodeId>& nodes, std::int64_t batch,
                                      const Replicas& from, const Replicas& to) {
  BoundaryEnd::Shape shape;
  shape.batch = batch;
  for (const NodeId id : nodes) {
    const Node& node = graph_.node(id);
    const auto* input = std::get_if<Input>(&node.attributes);
    const bool tokens = input != nullptr && input->kind == InputKind::tokens;
    BoundaryEnd::Lane lane{node.output, tokens ? at::kLong : type_, widths_of(id, from),
                           widths_of(id, to)};
    check_columns(id, lane, from, to);
    shape.lanes.push_back(std::move(lane));
  }
  return shape;
}

/// Packed heads lie in another order on groups of another size.
void BoundaryShapes::check_columns(NodeId id, const BoundaryEnd::Lane& lane, const Replicas& from,
                                   const Replicas& to) {
  if (lane.from_widths == lane.to_widths) return;
  for (const Replicas* side : {&from, &to}) {
    const auto degree = static_cast<int>(side->front()->ranks.size());
    if (degree == 1 || shard_of(degree, 0).columns[at_index(id.value())].size() <= 1) continue;
    throw UserError(
        fmt::format("the packed heads of '{}' cross a stage border between {} and {} "
                    "tensor-parallel ranks",
                    graph_.node(id).name, from.front()->ranks.size(), to.front()->ranks.size()),
        "they lie in another order on each",
        "Cut the model before the projection or behind the attention");
  }
}

}  // namespace heteroperf
