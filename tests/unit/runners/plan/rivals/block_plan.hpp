#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "runners/plan/plan.hpp"

namespace heteroperf {

/// One stage of a plan by hand: blocks, replicas × tensor-parallel ranks, samples of a replica.
struct BlockStage {
  int blocks = 1, replicas = 1, tensor = 1;
  std::int64_t micro_batch = 1;
  std::string device_class;
};

/// Stages of whole blocks, ranks in order, the embedding first and the head last.
inline Plan block_plan(const std::vector<BlockStage>& stages) {
  Plan plan;
  plan.micro_batches = 6;
  int block = 0, rank = 0;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    PlanStage& stage = plan.stages.emplace_back();
    if (s == 0) stage.nodes = {"input", "embedding"};
    for (int b = 0; b < stages[s].blocks; ++b, ++block) {
      for (const char* part : {"attn.qkv", "attn.core", "mlp_add"}) {
        stage.nodes.push_back(fmt::format("block{}.{}", block, part));
      }
    }
    if (s + 1 == stages.size()) {
      for (const char* node : {"final_norm", "head", "loss"}) stage.nodes.emplace_back(node);
    }
    for (int r = 0; r < stages[s].replicas; ++r) {
      StageReplica& replica = stage.replicas.emplace_back();
      for (int t = 0; t < stages[s].tensor; ++t) replica.ranks.emplace_back(rank++);
      replica.micro_batch = stages[s].micro_batch;
      replica.device_class = stages[s].device_class;
    }
  }
  return plan;
}

}  // namespace heteroperf
