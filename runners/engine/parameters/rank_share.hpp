#pragma once

#include <vector>

#include "runners/plan/plan.hpp"
#include "runners/plan/ready/plan_schedule.hpp"
#include "runners/plan/staged_graph.hpp"
#include "runners/plan/tensor/tensor_parallel.hpp"

namespace heteroperf {

/// A parameter as one rank holds it.
struct HeldParameter {
  NodeId node;            ///< in the full graph: the owner of a tied weight
  std::size_t index = 0;  ///< in the full node's Node::parameters
  Shape shape;            ///< local
  ParameterShard shard;   ///< the part of the full parameter
  std::size_t part = 0;   ///< RankShare::parts: whose gradients end when
};

/// The stages that one rank runs under a plan and the parameters that it holds. It is a pure value:
/// every rank can compute the share of any other.
struct RankShare {
  struct Part {
    RankRole::Part role;
    std::vector<NodeId> nodes;  ///< the stage's
    std::size_t shard = 0;      ///< into `shards`
  };
  RankRole role;
  std::vector<Part> parts;          ///< by segment
  std::vector<TensorShard> shards;  ///< one per degree and part that this rank works in
  /// A weight that two parts of this rank use is held once, by the first.
  std::vector<HeldParameter> parameters;
};

RankShare rank_share(const ModelGraph& graph, const StagedGraph& staged, const Plan& plan,
                     const RankRole& role);

/// Some replica of some stage has several ranks.
bool has_tensor_parallelism(const Plan& plan);

}  // namespace heteroperf
