#pragma once

#include <functional>
#include <vector>

#include "runners/plan/search/problem/layer_sums.hpp"

namespace heteroperf {

/// All ways in which free devices of a small problem can take a micro-batch.
class ReplicaChoices {
 public:
  using Visit = std::function<void(const std::vector<ReplicaGroup>&)>;
  /// Both outlive it.
  ReplicaChoices(const PlanningProblem& problem, const LayerSums& sums);

  /// Calls `visit` with every set of replicas that take `samples`; its devices are taken meanwhile,
  /// so that calls may nest.
  void for_each(std::int64_t samples, const Visit& visit);
  /// Every replica there can be, without its number.
  const std::vector<ReplicaGroup>& types() const { return types_; }

 private:
  void from(std::size_t type, std::int64_t open, std::vector<ReplicaGroup>& groups,
            const Visit& visit);
  void take(const ReplicaGroup& group, int sign);

  const PlanningProblem& problem_;
  std::vector<ReplicaGroup> types_;
  std::vector<int> free_;  ///< devices, by pool
};

}  // namespace heteroperf
