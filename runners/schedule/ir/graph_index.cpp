// Numbers are assigned once per graph, in vectors by segment, edge and interaction. A segment may
// see only some of the micro-batches, so each has a first number of its own, and the rest is
// arithmetic: first slot + (micro-batch − first micro-batch) · parts + part.

#include "runners/schedule/ir/graph_index.hpp"

#include <fmt/format.h>

#include <limits>
#include <tuple>

#include "metrics/base/error.hpp"

namespace heteroperf {

TaskTable::TaskTable(const PipelineGraph& graph) : graph_(&graph) {
  const std::size_t segments = graph.segments.size();
  first_slot_.assign(1, 0);
  for (const SegmentId segment : graph.segments.ids()) {
    const std::int32_t slots = graph.segments[segment].micro_batches * graph.parts;
    first_slot_.push_back(first_slot_.back() + slots);
    segment_of_.insert(segment_of_.end(), slots, segment);
  }
  // Edges keep their order in the graph within each list.
  const auto by_end = [&](SegmentId Edge::*end) {
    return GroupedLists<EdgeId>(segments, [&](auto insert) {
      for (const EdgeId e : graph.edges.ids()) insert((graph.edges[e].*end).value(), e);
    });
  };
  in_ = by_end(&Edge::to);
  out_ = by_end(&Edge::from);
  interactions_ = GroupedLists<int>(segments, [&](auto insert) {
    for (int i = 0; i < static_cast<int>(graph.interactions.size()); ++i) {
      for (const SegmentId member : graph.interactions[i].members) insert(member.value(), i);
    }
  });
}

Instruction TaskTable::instruction(Op op, std::int32_t slot) const {
  return compute(op, segment_of(slot), micro_batch_of(slot), part_of(slot));
}

bool TaskTable::is_sink(SegmentId segment) const {
  const std::span<const EdgeId> edges = edges_out(segment);
  return std::none_of(edges.begin(), edges.end(),
                      [&](EdgeId edge) { return graph_->edges[edge].gradient; });
}

MicroBatchId TaskTable::interaction_set(int interaction, MicroBatchId micro_batch) const {
  const Interaction& x = graph_->interactions[interaction];
  const MicroBatchId first = graph_->segments[x.members.front()].first_micro_batch;
  return first + (micro_batch - first) / x.every * x.every;
}

/// Channels are numbered by the sorted pairs of ranks that exchange something, so that equal graphs
/// have equal channels.
MessageIndex::MessageIndex(const TaskTable& tasks) : tasks_(&tasks) {
  const PipelineGraph& graph = tasks.graph();
  for (const Segment& segment : graph.segments) rank_.push_back(segment.rank);
  std::int64_t total = 0;
  std::vector<std::pair<int, int>> pairs;
  first_.push_back(0);
  for (const EdgeId edge : graph.edges.ids()) {
    total += std::int64_t{graph.segments[graph.edges[edge].from].micro_batches} * graph.parts;
    if (total > std::numeric_limits<std::int32_t>::max() / 4) {
      throw UserError(fmt::format("a schedule of more than {} messages", total), "",
                      "Use fewer edges, micro-batches or parts.");
    }
    first_.push_back(static_cast<std::int32_t>(total));
    if (rank_from(edge) != rank_to(edge)) pairs.emplace_back(rank_from(edge), rank_to(edge));
  }
  sort_unique(pairs);
  channels_ = 2 * static_cast<int>(pairs.size());
  for (const EdgeId edge : graph.edges.ids()) {
    const std::pair ranks(rank_from(edge), rank_to(edge));
    const auto place = std::lower_bound(pairs.begin(), pairs.end(), ranks) - pairs.begin();
    pair_.push_back(ranks.first != ranks.second ? static_cast<int>(place) : -1);
  }
}

std::int32_t MessageIndex::find(const Instruction& i, int rank) const {
  const PipelineGraph& graph = tasks_->graph();
  if (!graph.edges.contains(i.edge) || !crosses(i.edge)) return -1;
  const Edge& edge = graph.edges[i.edge];
  const bool gradient = carries_gradient(i.op);
  if (gradient && !edge.gradient) return -1;
  const bool at_from = gradient != is_send(i.op);
  const SegmentId here = at_from ? edge.from : edge.to, there = at_from ? edge.to : edge.from;
  if (i.segment != here || rank_[here] != rank || i.peer != rank_[there]) return -1;
  const std::int32_t slot = tasks_->slot(i);
  return slot < 0 ? -1 : of(i.edge, slot);
}

/// `weights` of a graph are any numbers; here they become 0, 1, … in their order. Tied sets and the
/// sets of interactions follow.
CollectiveIndex::CollectiveIndex(const TaskTable& tasks) : tasks_(&tasks) {
  const PipelineGraph& graph = tasks.graph();
  std::vector<int> names;
  for (const Segment& segment : graph.segments) names.push_back(segment.weights);
  sort_unique(names);
  weights_ = static_cast<int>(names.size());
  ranks_.resize(names.size() + graph.tied.size() + graph.interactions.size());
  std::vector<std::tuple<int, int, SegmentId>> copies;
  for (const Segment& segment : graph.segments) {
    const auto name = std::lower_bound(names.begin(), names.end(), segment.weights);
    copies.emplace_back(name - names.begin(), segment.rank, weights_of_.size());
    weights_of_.push_back(static_cast<int>(name - names.begin()));
    ranks_[weights_of_.back()].push_back(segment.rank);
  }
  std::sort(copies.begin(), copies.end());
  first_copies_.resize(names.size());
  for (const auto& [weights, rank, segment] : copies) {
    std::vector<SegmentId>& first = first_copies_[weights];
    if (first.empty() || graph.segments[first.back()].rank != rank) first.push_back(segment);
  }
  if (!graph.tied.empty()) tied_sets_.resize(graph.segments.size());
  for (std::size_t set = 0; set < graph.tied.size(); ++set) {
    for (const SegmentId s : graph.tied[set]) {
      ranks_[names.size() + set].push_back(graph.segments[s].rank);
      tied_sets_[s].push_back(static_cast<int>(set));
    }
  }
  size_ = weights_ + static_cast<std::int32_t>(graph.tied.size());
  for (std::size_t i = 0; i < graph.interactions.size(); ++i) {
    const Interaction& x = graph.interactions[i];
    first_set_.push_back(size_);
    size_ += (graph.segments[x.members.front()].micro_batches + x.every - 1) / x.every;
    for (const SegmentId member : x.members) {
      ranks_[names.size() + graph.tied.size() + i].push_back(graph.segments[member].rank);
    }
  }
  first_set_.push_back(size_);
  for (std::vector<int>& ranks : ranks_) sort_unique(ranks);
  for (std::vector<int>& sets : tied_sets_) sort_unique(sets);
}

std::int32_t CollectiveIndex::interaction(int interaction, MicroBatchId micro_batch) const {
  const Interaction& x = tasks_->graph().interactions[interaction];
  const MicroBatchId first = tasks_->graph().segments[x.members.front()].first_micro_batch;
  return first_set_[interaction] + (micro_batch - first) / x.every;
}

/// All sets of an interaction have the same ranks, so these are stored once per interaction.
std::span<const int> CollectiveIndex::ranks(std::int32_t collective) const {
  if (collective < first_set_.front()) return ranks_[collective];
  return ranks_[first_set_.front() + set_of(collective).interaction];
}

CollectiveIndex::Set CollectiveIndex::set_of(std::int32_t collective) const {
  const auto after = std::upper_bound(first_set_.begin(), first_set_.end(), collective);
  const int index = static_cast<int>(after - first_set_.begin()) - 1;
  const Interaction& x = tasks_->graph().interactions[index];
  return {index, tasks_->graph().segments[x.members.front()].first_micro_batch +
                     (collective - first_set_[index]) * x.every};
}

CollectiveIndex::Reader::Reader(const CollectiveIndex& index, int rank)
    : index_(&index), rank_(rank), tied_seen_(index.tied_sets_.size(), 0) {}

std::int32_t CollectiveIndex::Reader::find(const Instruction& i) {
  if (i.op == Op::interact) return find_interaction(i);
  const PipelineGraph& graph = index_->tasks_->graph();
  if (!graph.segments.contains(i.segment)) return -1;
  if (graph.segments[i.segment].rank != rank_) return -1;
  if (i.op == Op::reduce_grad) return index_->weights_of_[i.segment];
  if (tied_seen_.empty()) return -1;
  const std::vector<int>& sets = index_->tied_sets_[i.segment];
  const std::size_t seen = tied_seen_[i.segment]++;
  return seen < sets.size() ? index_->weights_ + sets[seen] : -1;
}

/// An INTERACT has to name the first micro-batch of its set.
std::int32_t CollectiveIndex::Reader::find_interaction(const Instruction& i) const {
  const PipelineGraph& graph = index_->tasks_->graph();
  if (i.edge.index() >= graph.interactions.size()) return -1;
  if (!graph.passes(graph.interactions[i.interaction()].members.front(), i.micro_batch)) return -1;
  if (index_->tasks_->interaction_set(i.interaction(), i.micro_batch) != i.micro_batch) return -1;
  const std::int32_t collective = index_->interaction(i.edge.value(), i.micro_batch);
  const std::span<const int> ranks = index_->ranks(collective);
  return std::binary_search(ranks.begin(), ranks.end(), rank_) ? collective : -1;
}

int ValueIndex::gradient_edges_in(SegmentId segment) const {
  const auto& edges = tasks_->graph().edges;
  return static_cast<int>(std::ranges::count_if(tasks_->edges_in(segment),
                                                [&](EdgeId edge) { return edges[edge].gradient; }));
}

}  // namespace heteroperf
