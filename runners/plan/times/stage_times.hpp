#pragma once

#include <vector>

#include "runners/cluster/cluster.hpp"
#include "runners/plan/plan.hpp"
#include "runners/plan/staged_graph.hpp"
#include "runners/plan/times/stage_work.hpp"
#include "workloads/recipe.hpp"

namespace heteroperf {

/// The seconds that a plan's pieces take: the simulator predicts with them and a paced device keeps
/// to.
struct StageTimes {
  /// The passes of one micro-batch on one replica, tensor-parallel communication included.
  struct Compute {
    double forward_s = 0, input_gradient_s = 0, weight_gradient_s = 0;
    double recompute_s = 0;  ///< before the backward; 0 where nothing is recomputed
  };
  IdVector<StageId, IdVector<ReplicaId, Compute>> compute;
  /// An edge's message for one micro-batch, one way, between the slowest pair of replicas.
  std::vector<double> activation_s, gradient_s;  ///< by StagedGraph::edges
  /// Summing a stage's gradients over its replicas, and its share of the optimizer.
  IdVector<StageId, double> reduction_s, optimizer_s;
  /// The last exchange of a step: loss and gradient norm over all ranks.
  double agreement_s = 0;
};

/// From the classes' rates, the efficiency matrix where it has an entry, and the links of
/// `cluster`, whose rank r is the plan's: ClassRates::pass_s(), α–β messages. Throws UserError
/// with everything missing: a rank beyond the cluster, a class without a rate for `precision`.
StageTimes stage_times(const ModelGraph& graph, const StagedGraph& staged, const Plan& plan,
                       const Cluster& cluster, Precision precision,
                       OptimizerKind optimizer = OptimizerKind::adamw);

/// StageTimes::compute of one stage on one replica that need not be the plan's.
/// `works` is of `graph` and `staged`. Requires a cluster that has the replica's ranks and their
/// rates.
StageTimes::Compute replica_times(const ModelGraph& graph, const StagedGraph& staged,
                                  const Plan& plan, StageId stage, const StageReplica& replica,
                                  const Cluster& cluster, Precision precision,
                                  StageWorkTable& works);

}  // namespace heteroperf
