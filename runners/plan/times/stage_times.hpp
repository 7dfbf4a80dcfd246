#pragma once

#include <vector>

#include "runners/cluster/cluster.hpp"
#include "runners/plan/plan.hpp"
#include "runners/plan/staged_graph.hpp"
#include "runners/plan/times/stage_work.hpp"

namespace heteroperf {

/// The seconds that a plan's pieces take: the simulator predicts with them and a paced device keeps
/// to.
struct StageTimes {
  /// The passes of one micro-batch on one replica, tensor-parallel communication included.
  struct Compute {
    double forward_s = 0;
    double recompute_s = 0;  ///< before the backward; 0 where nothing is recomputed
    double input_gradient_s = 0, weight_gradient_s = 0;
    double total() const { return forward_s + input_gradient_s + weight_gradient_s + recompute_s; }
    /// Takes the longer time of the two, pass by pass.
    void raise_to(const Compute& other);
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
/// with everything missing: a rank beyond the cluster, a class without a rate for the precision.
StageTimes stage_times(const TrainingTask& task, const StagedGraph& staged, const Plan& plan,
                       const Cluster& cluster);

/// StageTimes::compute of one stage on one replica that need not be the plan's.
/// `works` is of the task's graph and `staged`. Requires a cluster that has the replica's ranks and
/// their rates.
StageTimes::Compute replica_times(const TrainingTask& task, const StagedGraph& staged,
                                  const Plan& plan, StageId stage, const StageReplica& replica,
                                  const Cluster& cluster, StageWorkTable& works);

}  // namespace heteroperf
