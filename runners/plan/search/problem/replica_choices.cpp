// All sets of replicas that together take one micro-batch.
//
// A *type* is a pool, a degree and a number of samples. The recursion goes through the types in a
// fixed order and takes none, one, two, … replicas of each while devices and samples last, so every
// set is visited once whatever the order of its members. Devices are marked as taken while the
// visitor runs: the visitor may ask for the next stage's sets, and sees only what is left.
#include "runners/plan/search/problem/replica_choices.hpp"

#include <algorithm>

#include "metrics/base/quantity.hpp"

namespace heteroperf {
ReplicaChoices::ReplicaChoices(const PlanningProblem& problem, const LayerSums& sums)
    : problem_(problem) {
  for (std::size_t p = 0; p < problem.pools.size(); ++p) {
    free_.push_back(problem.pools[p].devices);
    for (std::size_t d = 0; d < problem.degrees.size(); ++d) {
      if (problem.degrees[d] > problem.pools[p].devices_per_node) continue;
      for (std::int64_t m = problem.most_samples; m >= 1; --m) {
        if (!sums.known(static_cast<int>(p), static_cast<int>(d), m)) continue;
        types_.push_back({static_cast<int>(p), static_cast<int>(d), 1, m});
      }
    }
  }
}

void ReplicaChoices::for_each(std::int64_t samples, const Visit& visit) {
  std::vector<ReplicaGroup> groups;
  from(0, samples, groups, visit);
}

void ReplicaChoices::take(const ReplicaGroup& group, int sign) {
  free_[group.pool] -= sign * group.replicas * problem_.degrees[group.degree];
}

/// Replicas of the types from `type` on that take `open` samples.
void ReplicaChoices::from(std::size_t type, std::int64_t open, std::vector<ReplicaGroup>& groups,
                          const Visit& visit) {
  if (open == 0) return visit(groups);
  if (type == types_.size()) return;
  from(type + 1, open, groups, visit);
  ReplicaGroup group = types_[type];
  const int degree = problem_.degrees[group.degree];
  const auto most =
      static_cast<int>(std::min<std::int64_t>(free_[group.pool] / degree, open / group.samples));
  for (group.replicas = 1; group.replicas <= most; ++group.replicas) {
    groups.push_back(group);
    take(group, 1);
    from(type + 1, open - group.replicas * group.samples, groups, visit);
    take(group, -1);
    groups.pop_back();
  }
}

}  // namespace heteroperf
