// The layouts of the tensors between two stages. A tensor {batch, sample…} is cut along the batch
// by the shares of a stage's replicas, and along its last dimension where the replicas' ranks have
// the columns of a cut layer. Both sides are described alike, whoever asks, so that all ranks make
// the same reshard plan of them and the bytes that are sent can be foretold.
//
// A tensor lies on the *border* of two components where a node of another component takes it in the
// other stage. Forwards it leaves the component that made it, its gradient leaves the one that took
// it.
#include "runners/plan/ready/edge_layouts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "metrics/base/error.hpp"
#include "metrics/base/id.hpp"
#include "workloads/graph/graph_counts.hpp"

namespace heteroperf {
namespace {

/// The layout of a tensor {batch, sample…} that is cut along the batch by the replicas' shares, and
/// along the sequence where they have parts of it (`role`). Every rank of a replica holds all of
/// its part or, with `widths`, rank i the i-th columns of it.
/// `first_row`: the rows before each sample.
Layout batch_layout(const std::vector<const StageReplica*>& replicas,
                    const std::vector<std::int64_t>& sample,
                    std::span<const std::int64_t> first_row,
                    const std::vector<std::int64_t>& widths, SequenceRole role) {
  const std::int64_t batch = std::ssize(first_row) - 1;
  Layout::Shape shape{first_row.back()};
  shape.insert(shape.end(), sample.begin(), sample.end());
  std::vector<std::vector<std::int64_t>> boundaries{{0}};
  std::vector<std::vector<RankId>> holders;
  const SequencePart& part = replicas.front()->part;
  const bool has_parts = role == SequenceRole::part;
  const int parts = part.parts, chunks = has_parts ? part.chunk_count() : 1;
  for (auto group = replicas.begin(); group != replicas.end(); group += parts) {
    const std::int64_t first = boundaries[0].back();
    if (first == batch) break;
    boundaries[0].push_back(std::min(batch, first + (*group)->micro_batch));
    for (int chunk = 0; chunk < chunks; ++chunk) {
      std::vector<RankId> ranks = group[part.part_of_chunk(chunk)]->ranks;
      for (int other = 1; role == SequenceRole::whole && other < parts; ++other) {
        HETEROPERF_EXPECT(widths.empty());
        ranks.insert(ranks.end(), group[other]->ranks.begin(), group[other]->ranks.end());
      }
      if (widths.empty()) {
        holders.push_back(ranks);
        continue;
      }
      HETEROPERF_EXPECT(ranks.size() == widths.size());
      for (const RankId rank : ranks) holders.push_back({rank});
    }
  }
  HETEROPERF_EXPECT(boundaries[0].back() == batch);
  for (std::int64_t& boundary : boundaries[0]) boundary = first_row[boundary];
  for (const std::int64_t extent : sample) boundaries.push_back({0, extent});
  if (has_parts) {
    HETEROPERF_EXPECT(sample.size() == 2 && part.divides(sample.front()));
    boundaries[1].clear();
    for (int chunk = 0; chunk <= chunks; ++chunk) {
      boundaries[1].push_back(part.first_of_chunk(chunk, sample.front()));
    }
  }
  if (!widths.empty()) {
    boundaries.back() = {0};
    for (const std::int64_t width : widths) {
      boundaries.back().push_back(boundaries.back().back() + width);
    }
  }
  return Layout(std::move(shape), std::move(boundaries), std::move(holders));
}

}  // namespace

EdgeLayouts::EdgeLayouts(const ModelGraph& graph, const ReadyPlan& ready)
    : graph_(graph), ready_(ready), shards_(graph) {
  const std::vector<std::string> components = components_of(graph);
  for (const Node& node : graph.nodes()) {
    component_of_.push_back(std::ranges::find(components, node.branch) - components.begin());
  }
}

// In a two-way schedule every edge of the plan has a copy for the other direction, behind all edges
// of the first one.
const StageEdge& EdgeLayouts::planned(EdgeId edge) const {
  return ready_.staged.edges[edge.index() % ready_.staged.edges.size()];
}

const std::vector<NodeId>& EdgeLayouts::nodes(EdgeId edge, Crossing what) const {
  return what == Crossing::activation ? planned(edge).nodes : planned(edge).with_gradient;
}

std::vector<const StageReplica*> EdgeLayouts::replicas_of(SegmentId segment) const {
  const auto stages = static_cast<int>(ready_.plan.stages.size());
  std::vector<const StageReplica*> result;
  for (const StageReplica& replica :
       ready_.plan.stages[StageId(segment.value() % stages)].replicas) {
    if (replica.direction == segment.value() / stages) result.push_back(&replica);
  }
  return result;
}

bool EdgeLayouts::has_items(EdgeId edge, Crossing what) const {
  return std::ranges::any_of(nodes(edge, what),
                             [&](NodeId node) { return graph_.node(node).items.has_value(); });
}

std::vector<EdgeTensor> EdgeLayouts::of(EdgeId edge, Crossing what, std::int64_t batch,
                                        std::span<const std::int64_t> first_item) {
  const Edge& ends = ready_.schedule.graph.edges[edge];
  Replicas from = replicas_of(ends.from), to = replicas_of(ends.to);
  if (what == Crossing::gradient) std::swap(from, to);
  std::vector<EdgeTensor> tensors;
  for (const NodeId id : nodes(edge, what)) {
    const std::vector<std::int64_t>& sample = graph_.node(id).output;
    std::vector<std::int64_t> first_row(first_item.begin(), first_item.end());
    if (!graph_.node(id).items || first_item.empty()) {
      first_row.clear();
      for (std::int64_t i = 0; i <= batch; ++i) first_row.push_back(i * most_rows(id));
    }
    const auto from_widths = widths_of(id, from), to_widths = widths_of(id, to);
    if (from_widths != to_widths) check_columns(id, from, to);
    tensors.push_back({id, batch_layout(from, sample, first_row, from_widths, role_of(id, from)),
                       batch_layout(to, sample, first_row, to_widths, role_of(id, to)),
                       component_left(edge, what, id)});
  }
  return tensors;
}

/// The most rows that a sample has of a node's output.
std::int64_t EdgeLayouts::most_rows(NodeId node) const {
  const std::optional<NodeId>& items = graph_.node(node).items;
  return items ? std::get<Input>(graph_.node(*items).attributes).items : 1;
}

/// The first node of another component that takes it stands for all.
std::optional<std::size_t> EdgeLayouts::component_left(EdgeId edge, Crossing what,
                                                       NodeId node) const {
  const std::size_t maker = component_of_[node.index()];
  for (const NodeId taker : ready_.staged.nodes[planned(edge).to]) {
    const std::vector<NodeId>& inputs = graph_.node(taker).inputs;
    const std::size_t component = component_of_[taker.index()];
    if (component == maker || std::ranges::find(inputs, node) == inputs.end()) continue;
    return what == Crossing::activation ? maker : component;
  }
  return std::nullopt;
}

/// Widths of a node's output on the ranks of a replica; empty where all have it whole.
std::vector<std::int64_t> EdgeLayouts::widths_of(NodeId id, const Replicas& replicas) {
  std::vector<std::int64_t> widths;
  const std::size_t degree = replicas.front()->ranks.size();
  if (std::all_of(replicas.begin(), replicas.end(),
                  [](const StageReplica* r) { return r->ranks.size() == 1; })) {
    return widths;
  }
  for (const StageReplica* replica : replicas) {
    if (replica->ranks.size() == degree) continue;
    if (degree > 1 && !shards_.of(static_cast<int>(degree), 0).output_is_sharded[id.index()]) {
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
    const TensorShard& shard = shards_.of(static_cast<int>(degree), static_cast<int>(i));
    if (!shard.output_is_sharded[id.index()]) return {};
    widths.push_back(shard.graph.node(id).output.back());
  }
  return widths;
}

SequenceRole EdgeLayouts::role_of(NodeId id, const Replicas& replicas) {
  return shards_.of(1, 0, replicas.front()->part.first_part()).sequence_role[id.index()];
}

/// Packed heads lie in another order on groups of another size.
void EdgeLayouts::check_columns(NodeId id, const Replicas& from, const Replicas& to) {
  for (const Replicas* side : {&from, &to}) {
    const auto degree = static_cast<int>(side->front()->ranks.size());
    if (degree == 1 || shards_.of(degree, 0).columns[id.index()].size() <= 1) continue;
    throw UserError(
        fmt::format("the packed heads of '{}' cross a stage border between {} and {} "
                    "tensor-parallel ranks",
                    graph_.node(id).name, from.front()->ranks.size(), to.front()->ranks.size()),
        "they lie in another order on each",
        "Cut the model before the projection or behind the attention");
  }
}

}  // namespace heteroperf
