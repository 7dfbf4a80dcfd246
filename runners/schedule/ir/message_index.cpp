#include "runners/schedule/ir/message_index.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "metrics/base/error.hpp"

namespace heteroperf {

MessageIndex::MessageIndex(const TaskTable& tasks) : tasks_(&tasks) {
  const PipelineGraph& graph = tasks.graph();
  for (const Segment& segment : graph.segments) rank_.push_back(segment.rank);
  std::int64_t total = 0;
  std::vector<std::pair<int, int>> pairs;
  first_.push_back(0);
  for (std::size_t e = 0; e < graph.edges.size(); ++e) {
    total += std::int64_t{graph.segments[graph.edges[e].from].micro_batches} * graph.parts;
    if (total > std::numeric_limits<std::int32_t>::max() / 4) {
      throw UserError(fmt::format("a schedule of more than {} messages", total), "",
                      "Use fewer edges, micro-batches or parts.");
    }
    first_.push_back(static_cast<std::int32_t>(total));
    const int edge = static_cast<int>(e);
    if (rank_from(edge) != rank_to(edge)) pairs.emplace_back(rank_from(edge), rank_to(edge));
  }
  std::sort(pairs.begin(), pairs.end());
  pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
  channels_ = 2 * static_cast<int>(pairs.size());
  for (int e = 0; e < static_cast<int>(graph.edges.size()); ++e) {
    const auto found =
        std::lower_bound(pairs.begin(), pairs.end(), std::pair(rank_from(e), rank_to(e)));
    const bool crosses = rank_from(e) != rank_to(e);
    pair_.push_back(crosses ? static_cast<int>(found - pairs.begin()) : -1);
  }
}

std::int32_t MessageIndex::find(const Instruction& i, int rank) const {
  const PipelineGraph& graph = tasks_->graph();
  if (i.edge < 0 || i.edge >= static_cast<int>(graph.edges.size()) || !crosses(i.edge)) return -1;
  const Edge& edge = graph.edges[i.edge];
  const bool gradient = carries_gradient(i.op);
  if (gradient && !edge.gradient) return -1;
  const bool at_from = gradient != is_send(i.op);
  const int segment = at_from ? edge.from : edge.to, other = at_from ? edge.to : edge.from;
  if (i.segment != segment || rank_[segment] != rank || i.peer != rank_[other]) return -1;
  const std::int32_t slot = tasks_->slot(segment, i.micro_batch, i.part);
  return slot < 0 ? -1 : of(i.edge, slot);
}

}  // namespace heteroperf
