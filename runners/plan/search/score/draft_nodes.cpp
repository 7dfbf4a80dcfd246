// The check that the nodes of the pools have room for a draft's tensor-parallel groups.
//
// A group of a degree stays within one node, so a draft may have enough devices in a pool and still
// not fit: two groups of three do not share a node of four. The check packs groups as
// GraphProblem::plan() does, largest degrees first, each into the fullest node that still has room,
// and it counts nodes by their free devices instead of listing them, because pools may have
// thousands. Pools are thought to consist of equal nodes and at most one smaller one.
#include <algorithm>

#include "metrics/base/quantity.hpp"
#include "runners/plan/search/score/draft_scorer.hpp"

namespace heteroperf {
namespace {

/// Nodes of one pool, by how many of their devices are free.
class FreeNodes {
 public:
  FreeNodes(int devices, int per_node) : count_(static_cast<std::size_t>(per_node) + 1, 0) {
    count_[per_node] = devices / per_node;
    ++count_[devices % per_node];
  }

  /// Takes groups from the fullest nodes that have room, as plans do; false where there are too
  /// few.
  bool take(int groups, int degree) {
    for (std::size_t size = degree; size < count_.size() && groups > 0; ++size) {
      const int taken = std::min(groups, count_[size]);
      count_[size] -= taken;
      count_[size - static_cast<std::size_t>(degree)] += taken;
      groups -= taken;
      // The rest of these nodes may have room again.
      if (taken > 0 && size >= 2 * static_cast<std::size_t>(degree))
        size = static_cast<std::size_t>(degree) - 1;
    }
    return groups == 0;
  }

 private:
  std::vector<int> count_;
};

}  // namespace

bool DraftScorer::finds_nodes(const PipelineDraft& draft) const {
  for (std::size_t p = 0; p < problem_.pools.size(); ++p) {
    std::vector<int> groups(problem_.degrees.size(), 0);
    const int per_node = problem_.pools[p].devices_per_node;
    bool even = true;
    for (int s = 0; s < draft.positions(); ++s) {
      for (const ReplicaGroup& group : draft.stages[s].groups) {
        if (static_cast<std::size_t>(group.pool) != p) continue;
        groups[group.degree] += group.replicas;
        even = even && per_node % problem_.degrees[group.degree] == 0;
      }
    }
    // Degrees that divide the nodes, and each other, always find room.
    const bool powers = even && (per_node & (per_node - 1)) == 0;
    // Nothing is packed in the usual case.
    if (powers) continue;
    FreeNodes nodes(problem_.pools[p].devices, per_node);
    for (std::size_t d = groups.size(); d-- > 0;) {
      if (!nodes.take(groups[d], problem_.degrees[d])) return false;
    }
  }
  return true;
}

}  // namespace heteroperf
