#include "runners/schedule/ir/collective_index.hpp"

#include <algorithm>

namespace heteroperf {
namespace {

void sort_unique(std::vector<int>& values) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
}

}  // namespace

CollectiveIndex::CollectiveIndex(const TaskTable& tasks) : tasks_(&tasks) {
  const PipelineGraph& graph = tasks.graph();
  std::vector<int> names;
  for (const Segment& segment : graph.segments) names.push_back(segment.weights);
  sort_unique(names);
  weights_ = static_cast<int>(names.size());
  ranks_.resize(names.size() + graph.tied.size() + graph.interactions.size());
  for (const Segment& segment : graph.segments) {
    const auto found = std::lower_bound(names.begin(), names.end(), segment.weights);
    weights_of_.push_back(static_cast<int>(found - names.begin()));
    ranks_[weights_of_.back()].push_back(segment.rank);
  }
  if (!graph.tied.empty()) tied_sets_.resize(graph.segments.size());
  for (std::size_t set = 0; set < graph.tied.size(); ++set) {
    for (const int s : graph.tied[set]) {
      ranks_[names.size() + set].push_back(graph.segments[s].rank);
      tied_sets_[s].push_back(static_cast<int>(set));
    }
  }
  size_ = weights_ + static_cast<std::int32_t>(graph.tied.size());
  for (std::size_t i = 0; i < graph.interactions.size(); ++i) {
    const Interaction& x = graph.interactions[i];
    first_set_.push_back(size_);
    size_ += (graph.segments[x.members.front()].micro_batches + x.every - 1) / x.every;
    for (const int member : x.members) {
      ranks_[names.size() + graph.tied.size() + i].push_back(graph.segments[member].rank);
    }
  }
  first_set_.push_back(size_);
  for (std::vector<int>& ranks : ranks_) sort_unique(ranks);
  for (std::vector<int>& sets : tied_sets_) sort_unique(sets);
}

std::int32_t CollectiveIndex::interaction(int interaction, int micro_batch) const {
  const Interaction& x = tasks_->graph().interactions[interaction];
  const int first = tasks_->graph().segments[x.members.front()].first_micro_batch;
  return first_set_[interaction] + (micro_batch - first) / x.every;
}

std::span<const int> CollectiveIndex::ranks(std::int32_t collective) const {
  if (collective < first_set_.front()) return ranks_[collective];
  const auto after = std::upper_bound(first_set_.begin(), first_set_.end(), collective);
  return ranks_[first_set_.front() + (after - first_set_.begin()) - 1];
}

CollectiveIndex::Reader::Reader(const CollectiveIndex& index, int rank)
    : index_(&index), rank_(rank), tied_seen_(index.tied_sets_.size(), 0) {}

std::int32_t CollectiveIndex::Reader::find(const Instruction& i) {
  if (i.op == Op::interact) return find_interaction(i);
  const PipelineGraph& graph = index_->tasks_->graph();
  if (i.segment < 0 || i.segment >= static_cast<int>(graph.segments.size())) return -1;
  if (graph.segments[i.segment].rank != rank_) return -1;
  if (i.op == Op::reduce_grad) return index_->weights_of_[i.segment];
  if (tied_seen_.empty()) return -1;
  const std::vector<int>& sets = index_->tied_sets_[i.segment];
  const int seen = tied_seen_[i.segment]++;
  return seen < static_cast<int>(sets.size()) ? index_->tied(sets[seen]) : -1;
}

std::int32_t CollectiveIndex::Reader::find_interaction(const Instruction& i) const {
  const PipelineGraph& graph = index_->tasks_->graph();
  if (i.edge < 0 || i.edge >= static_cast<int>(graph.interactions.size())) return -1;
  if (!graph.passes(graph.interactions[i.edge].members.front(), i.micro_batch)) return -1;
  if (index_->tasks_->interaction_set(i.edge, i.micro_batch) != i.micro_batch) return -1;
  const std::int32_t collective = index_->interaction(i.edge, i.micro_batch);
  const std::span<const int> ranks = index_->ranks(collective);
  return std::binary_search(ranks.begin(), ranks.end(), rank_) ? collective : -1;
}

}  // namespace heteroperf
