#pragma once

#include <string>
#include <vector>

#include "metrics/base/error.hpp"
#include "runners/plan/plan.hpp"
#include "workloads/graph/model_graph.hpp"

namespace heteroperf {

/// `--pp --tp --dp --chunks --micro-batch --micro-batches --schedule`.
/// The ranks of the plan are pipeline × data × context × tensor, whatever the chunks.
struct EvenPlanRequest {
  int pipeline = 1, tensor = 1, context = 1, data = 1, chunks = 1;
  std::int64_t micro_batch = 1;  ///< samples per replica
  int micro_batches = 1;         ///< per step
  std::string schedule = "1f1b";
  Recomputation recomputation = Recomputation::none;
  int zero_stage = 0;
  bool sequence_parallel = false;
  /// By stage, how fast its ranks are, for stages that take equal times; empty: all alike.
  std::vector<double> speeds = {};
};

/// Cuts a component (a branch of the graph; all of it where the name is empty) into stages of
/// nearly equal training operations: the nodes of each, in the order of the graph. Cuts lie where
/// one tensor of each component at most crosses if there are enough such places, else anywhere that
/// something with a gradient crosses. Gives none and notes it where there are too few places. With
/// `speeds` of the stages their operations are in proportion to these.
std::vector<std::vector<NodeId>> even_stages(const ModelGraph& graph, const std::string& component,
                                             std::size_t stages, ProblemList& problems,
                                             const std::vector<double>& speeds = {});

/// Adds the replicas that share the samples of `copy`, one for each part of their sequences, with
/// ranks from `first_rank` on, and returns the rank behind them. `order`: usual_order() of the
/// stage.
int add_replicas(PlanStage& stage, StageReplica copy, int tensor, int context, SequenceOrder order,
                 int first_rank);

/// Stages of nearly equal training operations, cut where one tensor of each component at most
/// crosses if there are enough such places (else anywhere the graph allows), the same replicas
/// everywhere. Ranks: tensor-parallel neighbours first, then parts of sequences, replicas,
/// positions. Throws UserError with everything wrong (more stages than cuts, heads, what the
/// schedule does not allow).
Plan even_plan(const ModelGraph& graph, const EvenPlanRequest& request);

}  // namespace heteroperf
