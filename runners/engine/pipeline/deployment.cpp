#include "runners/engine/pipeline/deployment.hpp"

namespace heteroperf {

Deployment::Deployment(const ModelGraph& graph, const ReadyPlan& ready, RankId rank)
    : staged(ready.staged),
      schedule(ready.schedule),
      roles(ready.roles),
      share(rank_share(graph, staged, ready.plan,
                       roles.at(static_cast<std::size_t>(rank.value())))) {}

std::vector<const StageReplica*> replicas_of(const Plan& plan, int stage, int direction) {
  std::vector<const StageReplica*> result;
  for (const StageReplica& replica : plan.stages[static_cast<std::size_t>(stage)].replicas) {
    if (replica.direction == direction) result.push_back(&replica);
  }
  return result;
}

std::int64_t first_sample(const Plan& plan, int stage, int replica) {
  const std::vector<StageReplica>& replicas = plan.stages[static_cast<std::size_t>(stage)].replicas;
  const int direction = replicas[static_cast<std::size_t>(replica)].direction;
  std::int64_t first = 0;
  for (int r = 0; r < replica; ++r) {
    const StageReplica& other = replicas[static_cast<std::size_t>(r)];
    if (other.direction == direction) first += other.micro_batch;
  }
  return first;
}

}  // namespace heteroperf
