#pragma once

#include "runners/engine/parameters/rank_share.hpp"
#include "runners/plan/ready/ready_plan.hpp"

namespace heteroperf {

/// The part of one rank in a plan that is ready, which outlives it.
struct Deployment {
  const StagedGraph& staged;
  const Schedule& schedule;  ///< the one that was predicted
  const std::vector<RankRole>& roles;
  RankShare share;

  Deployment(const ModelGraph& graph, const ReadyPlan& ready, RankId rank);

  const std::vector<Instruction>& program() const {
    return schedule.programs[share.role.position.index()];
  }
  /// Edge of StagedGraph behind one of the schedule.
  const StageEdge& edge(EdgeId schedule_edge) const {
    return staged.edges[schedule_edge.index() % staged.edges.size()];
  }
};

/// Replicas of a segment's stage in its direction of the pipeline.
std::vector<const StageReplica*> replicas_of(const Plan& plan, StageId stage, int direction);

/// First sample, within a micro-batch, of a replica.
std::int64_t first_sample(const Plan& plan, StageId stage, ReplicaId replica);

}  // namespace heteroperf
