#include "runners/schedule/lower/buffer_pool.hpp"

#include <algorithm>

namespace heteroperf {

BufferPool::BufferPool(const TaskTable& tasks, const MessageIndex& messages,
                       const CollectiveIndex& collectives)
    : tasks_(&tasks), collectives_(&collectives), values_(tasks, messages, collectives) {
  std::int64_t entries = values_.first_interaction();
  for (std::int32_t c = collectives.first_interaction(); c < collectives.size(); ++c) {
    first_entry_.push_back(entries);
    entries += static_cast<std::int64_t>(collectives.ranks(c).size());
  }
  entries_.resize(static_cast<std::size_t>(entries));
  const PipelineGraph& graph = tasks.graph();
  const auto ranks = static_cast<std::size_t>(graph.ranks);
  buffers_.assign(ranks, 0);
  free_.resize(ranks);
  done_.resize(ranks);
  for (int segment = 0; segment < static_cast<int>(graph.segments.size()); ++segment) {
    std::int32_t& outputs = output_uses_.emplace_back(1);
    for (const int edge : tasks.edges_out(segment)) outputs += messages.crosses(edge) ? 0 : 1;
    gradient_uses_.push_back(values_.gradient_edges_in(segment));
  }
}

BufferPool::Entry& BufferPool::entry(int rank, std::int64_t value) {
  if (value < values_.first_interaction()) return entries_[value];
  const auto number = static_cast<std::int32_t>(value - values_.first_interaction());
  const auto ranks = collectives_->ranks(collectives_->first_interaction() + number);
  return entries_[first_entry_[number] +
                  (std::lower_bound(ranks.begin(), ranks.end(), rank) - ranks.begin())];
}

std::int32_t BufferPool::fill(int rank, std::int64_t value, std::int32_t uses) {
  std::int32_t buffer = buffers_[rank];
  if (free_[rank].empty()) {
    ++buffers_[rank];
  } else {
    buffer = free_[rank].back();
    free_[rank].pop_back();
  }
  entry(rank, value) = {buffer, uses};
  return buffer;
}

void BufferPool::use(int rank, std::int64_t value) {
  Entry& used = entry(rank, value);
  if (--used.uses == 0) done_[rank].push_back(used.buffer);
}

void BufferPool::finish(int rank, std::int32_t slot, bool split) {
  const auto use_it = [&](std::int64_t value) { use(rank, value); };
  use_it(values_.output(slot));
  values_.for_each_input(slot, use_it);
  values_.for_each_gradient_input(slot, use_it);
  if (split) use_it(values_.gradient(slot));
}

}  // namespace heteroperf
