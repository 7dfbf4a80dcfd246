#pragma once

#include <vector>

#include "runners/plan/search/problem/pipeline_draft.hpp"
#include "runners/plan/search/problem/planning_problem.hpp"
#include "runners/plan/staged_graph.hpp"

namespace heteroperf {

/// The wishes for a plan beside model and machine.
/// The limits bound the tables: times are made for each micro-batch and each degree up to them.
struct PlanningRequest {
  Precision precision = Precision::fp32;
  OptimizerKind optimizer = OptimizerKind::adamw;
  std::int64_t batch = 1;          ///< samples of a step
  std::int64_t most_samples = 64;  ///< in a replica's micro-batch, at most
  int most_degree = 16;            ///< largest tensor-parallel degree
};

/// A model and a machine as a PlanningProblem, and the way back.
///
/// Layers are the pieces between those places of the graph's order where one narrow tensor crosses.
/// Pools are the ranks of one class and one cluster label, fastest class first, then by name: the
/// order of the description does not enter. Times are replica_times(), memory is stage_memory().
class GraphProblem {
 public:
  /// Throws UserError with everything wrong: no devices, a class without a rate, a model that
  /// cannot be cut to one layer per place. `graph` and `cluster` outlive it.
  GraphProblem(const ModelGraph& graph, const Cluster& cluster, const PlanningRequest& request);

  const PlanningProblem& problem() const { return problem_; }
  const Cluster& cluster() const { return cluster_; }
  const PlanningRequest& request() const { return request_; }
  TrainingTask task() const { return {graph_, request_.precision, request_.optimizer}; }
  /// [layer]: the end of each in the graph's order, in nodes.
  const std::vector<std::size_t>& ends() const { return layer_ends_; }
  /// [node]: the ranks of a pool, of the cluster.
  const std::vector<std::vector<RankId>>& nodes(int pool) const { return nodes_[pool]; }

  /// Devices are taken node by node, larger tensor-parallel groups first. Requires a draft that
  /// uses no more devices than there are. Throws UserError where nodes are too small for the
  /// groups.
  Plan plan(const PipelineDraft& draft) const;

 private:
  const ModelGraph& graph_;
  const Cluster& cluster_;
  PlanningRequest request_;
  PlanningProblem problem_;
  std::vector<std::size_t> layer_ends_;                  ///< by layer, in nodes
  std::vector<std::vector<std::vector<RankId>>> nodes_;  ///< [pool][node]: its ranks
};

}  // namespace heteroperf
