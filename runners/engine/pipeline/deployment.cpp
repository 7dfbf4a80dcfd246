#include "runners/engine/pipeline/deployment.hpp"

namespace heteroperf {

Deployment::Deployment(const ModelGraph& graph, const ReadyPlan& ready, RankId rank)
    : staged(ready.staged),
      schedule(ready.schedule),
      roles(ready.roles),
      share(rank_share(graph, staged, ready.plan, roles.at(rank.index()))) {}

std::vector<const StageReplica*> replicas_of(const Plan& plan, StageId stage, int direction) {
  std::vector<const StageReplica*> result;
  for (const StageReplica& replica : plan.stages[stage].replicas) {
    if (replica.direction == direction) result.push_back(&replica);
  }
  return result;
}

std::int64_t first_sample(const Plan& plan, StageId stage, ReplicaId replica) {
  const auto& replicas = plan.stages[stage].replicas;
  const int direction = replicas[replica].direction;
  std::int64_t first = 0;
  for (ReplicaId r; r < replica; ++r) {
    const StageReplica& other = replicas[r];
    if (other.direction == direction) first += other.micro_batch;
  }
  return first;
}

}  // namespace heteroperf
