#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "runners/plan/memory/stage_memory.hpp"
#include "runners/plan/plan.hpp"
#include "runners/plan/ready/ready_plan.hpp"
#include "runners/plan/staged_graph.hpp"
#include "runners/plan/tensor/tensor_parallel.hpp"

namespace heteroperf {

/// The bytes on the ranks of a plan that no order of its passes decides: parameters with their
/// states, and what a micro-batch takes in each pass. All that it is made of outlives it.
class RankBytes {
 public:
  RankBytes(const TrainingTask& task, const StagedGraph& staged, const Plan& plan)
      : task_(task), staged_(staged), plan_(plan), shards_(task.graph) {}

  const TrainingTask& task() const { return task_; }
  const StagedGraph& staged() const { return staged_; }
  const Plan& plan() const { return plan_; }

  const StageReplica& replica_of(const RankRole::Part& part) const {
    return plan_.stages[part.stage].replicas[part.replica];
  }
  /// The whole width of a part's share of the sequences.
  const ModelGraph& sequence_of(const RankRole::Part& part) {
    return shards_.of(1, 0, replica_of(part).part).graph;
  }
  /// Ranks of equal kinds take the same bytes.
  std::vector<std::int64_t> kind_of(const std::vector<RankRole::Part>& parts) const;
  /// A micro-batch's bytes on a rank of the part.
  const StageMemory& passes_of(const RankRole::Part& part);
  /// The weights, gradients and states of a rank with these parts.
  MemoryLedger states_of(const std::vector<RankRole::Part>& parts);

 private:
  const TensorShard& shard_of(const RankRole::Part& part);
  std::uint64_t hold(const TensorShard& shard, NodeId id,
                     std::set<std::pair<std::size_t, std::size_t>>& held) const;
  std::uint64_t owned_share(const RankRole::Part& part, std::uint64_t elements) const;

  const TrainingTask& task_;
  const StagedGraph& staged_;
  const Plan& plan_;
  ShardTable shards_;
  std::map<std::tuple<StageId, int, int, std::int64_t, SequencePart>, StageMemory> memories_;
};

/// [stage] for an order that is searched: the largest shares over the stage's ranks. Empty where no
/// device of the cluster, whose rank r is the plan's, has a limit.
StageShares stage_shares(RankBytes& bytes, const Cluster& cluster);

/// [rank]. `schedule` is the plan's lowered one, `timeline` its simulation.
std::vector<MemoryLedger> plan_memory(RankBytes& bytes, const Schedule& schedule,
                                      const Timeline& timeline);

}  // namespace heteroperf
