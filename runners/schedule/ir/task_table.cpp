#include "runners/schedule/ir/task_table.hpp"

#include <algorithm>

namespace heteroperf {

std::span<const int> TaskTable::Lists::of(int segment) const {
  return {values.data() + offset[segment], values.data() + offset[segment + 1]};
}

/// `insert_all` calls its argument with every (segment, value); twice, in one order.
template <class Insert>
TaskTable::Lists TaskTable::lists(int segments, Insert insert_all) {
  Lists lists;
  lists.offset.assign(segments + 1, 0);
  insert_all([&](int segment, int) { ++lists.offset[segment + 1]; });
  for (int i = 0; i < segments; ++i) lists.offset[i + 1] += lists.offset[i];
  lists.values.resize(lists.offset.back());
  std::vector<int> place(lists.offset.begin(), lists.offset.end() - 1);
  insert_all([&](int segment, int value) { lists.values[place[segment]++] = value; });
  return lists;
}

TaskTable::TaskTable(const PipelineGraph& graph) : graph_(&graph) {
  const int segments = static_cast<int>(graph.segments.size());
  first_slot_.assign(1, 0);
  for (int i = 0; i < segments; ++i) {
    const std::int32_t slots = graph.segments[i].micro_batches * graph.parts;
    first_slot_.push_back(first_slot_.back() + slots);
    segment_of_.insert(segment_of_.end(), slots, i);
  }
  const int edges = static_cast<int>(graph.edges.size());
  in_ = lists(segments, [&](auto insert) {
    for (int e = 0; e < edges; ++e) insert(graph.edges[e].to, e);
  });
  out_ = lists(segments, [&](auto insert) {
    for (int e = 0; e < edges; ++e) insert(graph.edges[e].from, e);
  });
  interactions_ = lists(segments, [&](auto insert) {
    for (int i = 0; i < static_cast<int>(graph.interactions.size()); ++i) {
      for (const int member : graph.interactions[i].members) insert(member, i);
    }
  });
}

std::int32_t TaskTable::slot(int segment, int micro_batch, int part) const {
  const auto segments = static_cast<int>(graph_->segments.size());
  if (segment < 0 || segment >= segments || part < 0 || part >= graph_->parts) return -1;
  if (!graph_->passes(segment, micro_batch)) return -1;
  const int index = micro_batch - graph_->segments[segment].first_micro_batch;
  return first_slot_[segment] + index * graph_->parts + part;
}

int TaskTable::micro_batch_of(std::int32_t slot) const {
  const int segment = segment_of_[slot];
  return graph_->segments[segment].first_micro_batch +
         (slot - first_slot_[segment]) / graph_->parts;
}

int TaskTable::part_of(std::int32_t slot) const {
  return (slot - first_slot_[segment_of_[slot]]) % graph_->parts;
}

std::span<const int> TaskTable::edges_in(int segment) const { return in_.of(segment); }
std::span<const int> TaskTable::edges_out(int segment) const { return out_.of(segment); }
bool TaskTable::is_sink(int segment) const {
  const std::span<const int> edges = edges_out(segment);
  return std::none_of(edges.begin(), edges.end(),
                      [&](int edge) { return graph_->edges[edge].gradient; });
}
std::span<const int> TaskTable::interactions_of(int segment) const {
  return interactions_.of(segment);
}

int TaskTable::interaction_set(int interaction, int micro_batch) const {
  const Interaction& x = graph_->interactions[interaction];
  const int first = graph_->segments[x.members.front()].first_micro_batch;
  return first + (micro_batch - first) / x.every * x.every;
}

}  // namespace heteroperf
