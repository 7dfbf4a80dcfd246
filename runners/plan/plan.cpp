// The small questions that a plan answers about itself.
//
// Stages agree on the micro-batch, which the checks of a ReadyPlan enforce, so the first stage
// stands for all. Only replicas of the downward direction count: in a two-way schedule the upward
// copies take other micro-batches of the same size.
#include "runners/plan/plan.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace heteroperf {

int Plan::ranks() const {
  // Ranks are numbered without gaps, so the largest says how many there are.
  std::int32_t most = -1;
  for (const PlanStage& stage : stages) {
    for (const StageReplica& replica : stage.replicas) {
      for (const RankId rank : replica.ranks) most = std::max(most, rank.value());
    }
  }
  return most + 1;
}

std::int64_t Plan::micro_batch_samples() const {
  std::int64_t samples = 0;
  if (stages.empty()) return samples;
  for (const StageReplica& replica : stages.front().replicas) {
    if (replica.direction == 0 && replica.ends_samples()) samples += replica.micro_batch;
  }
  return samples;
}

std::int64_t PlanStage::first_sample(ReplicaId replica) const {
  std::int64_t first = 0;
  for (ReplicaId r; r < replica; ++r) {
    const StageReplica& before = replicas[r];
    if (before.direction != replicas[replica].direction || !before.ends_samples()) continue;
    first += before.micro_batch;
  }
  return first;
}

std::uint64_t Plan::samples_per_step() const {
  return static_cast<std::uint64_t>(micro_batch_samples()) *
         static_cast<std::uint64_t>(micro_batches);
}

WireFormat Plan::wire(StageId from, StageId to) const {
  for (const StageWire& wire : wires) {
    if (wire.from == from && wire.to == to) return wire.format;
  }
  return WireFormat::fp32;
}

void check_zero_stage(int stage, ProblemList& problems) {
  if (stage == 0 || stage == 1) return;
  problems.add(fmt::format("ZeRO stage {}", stage),
               "0 keeps all optimizer states everywhere, 1 spreads them", "Give 0 or 1.");
}

}  // namespace heteroperf
