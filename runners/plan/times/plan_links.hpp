#pragma once

#include <vector>

#include "runners/cluster/cluster.hpp"
#include "runners/plan/plan.hpp"
#include "runners/plan/staged_graph.hpp"
#include "workloads/recipe.hpp"

namespace heteroperf {

/// The times of a plan's messages and sums on a cluster, whose rank r is the plan's.
class PlanLinks {
 public:
  /// All outlive it.
  PlanLinks(const ModelGraph& graph, const Plan& plan, const Cluster& cluster, Precision precision)
      : graph_(graph), plan_(plan), cluster_(cluster), precision_(precision) {}

  /// Ring all-reduce of n ranks: 2 (n−1)/n · bytes / bandwidth + 2 (n−1) · latency, by the slowest
  /// link of the ring.
  double ring_s(const std::vector<RankId>& ranks, double bytes) const;
  /// A rank of each replica of these stages, in a ring.
  std::vector<RankId> ring_of(const std::vector<StageId>& stages) const;
  /// The largest message between two replicas of the edge's stages, over the slowest link.
  double message_s(const StageEdge& edge, const std::vector<NodeId>& nodes) const;
  /// Two float64 numbers, in as many rounds as a tree has levels.
  /// Seconds; 0 for a plan of one rank.
  double agreement_s() const;

 private:
  template <class Visit>
  void for_each_pair(const StageEdge& edge, int direction, Visit visit) const;
  std::vector<RankId> distinct_ranks() const;

  const ModelGraph& graph_;
  const Plan& plan_;
  const Cluster& cluster_;
  Precision precision_;
};

}  // namespace heteroperf
