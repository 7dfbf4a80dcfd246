#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runners/cluster/cluster.hpp"
#include "runners/plan/plan.hpp"
#include "runners/plan/plan_cluster.hpp"
#include "suite/config/run_config.hpp"
#include "workloads/workload.hpp"

namespace heteroperf {

/// The contents of what `--cluster` and `--plan` name. Without --cluster a plan's own cluster
/// stands in.
struct PlanSources {
  std::string cluster_file = {};  ///< or a shipped name; empty without a cluster
  /// As the plan uses it, where there is one.
  std::optional<Cluster> cluster = std::nullopt;
  std::optional<Plan> plan = std::nullopt;
  int cluster_devices = 0;  ///< the whole cluster's; 0: none
};

/// Throws UserError with the problems of both.
PlanSources read_plan_sources(const RunConfig& config);

/// The settings of a run, with those that make the workload of the plan's file (`plan.file`) where
/// they leave it open: size, model, precision, sequence length, optimizer. A file that cannot be
/// read adds nothing here: read_plan_sources() says why.
std::vector<Setting> with_workload_of_plan(std::vector<Setting> given);

/// The configuration with the ranks that cluster, plan or degrees ask for, where it leaves them
/// open; `cores` are to be used otherwise. Throws UserError with every contradiction: --ranks or
/// the launcher's world (`world_ranks`, 0 without one) unlike the cluster's or the plan's.
RunConfig with_ranks(const RunConfig& config, const PlanSources& sources, int cores,
                     int world_ranks);

/// The machine as the scaling rule sees it: its smallest memory and its slowest class.
ScalingInput scaling_input(const Cluster& cluster, Precision precision);

}  // namespace heteroperf
