#pragma once

#include "metrics/base/error.hpp"
#include "runners/cluster/cluster.hpp"
#include "runners/plan/plan.hpp"
#include "workloads/model_graph.hpp"
#include "workloads/recipe.hpp"

namespace heteroperf {

/// Throws UserError with all problems at once: another graph's hash, stages that overlap or miss
/// nodes, ranks named twice or missing below the largest, replicas whose micro-batches do not add
/// up to the same number in every stage, degrees that heads do not divide, a schedule that does not
/// allow the counts, wires between stages without an edge, an unknown ZeRO stage.
void check_plan(const Plan& plan, const ModelGraph& graph);

/// Also against a machine: rank counts, device classes of the ranks, and the memory of each rank
/// ("stage 3 needs 41.2 GiB on rank 5, cpu (24.0 GiB available)").
void check_plan(const Plan& plan, const ModelGraph& graph, const Cluster& cluster,
                Precision precision, OptimizerKind optimizer);

}  // namespace heteroperf
