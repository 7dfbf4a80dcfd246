#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "suite/config/placement.hpp"
#include "suite/config/run_config.hpp"
#include "suite/planning/chosen_plan.hpp"
#include "workloads/workload.hpp"

namespace heteroperf {

struct PreparedRun;

/// One class of a mixed cluster alone, with its own best plan.
struct Baseline {
  std::string device_class;
  std::vector<RankId> ranks;  ///< ranks of the mixed run that run it, ascending
  /// Null where the class cannot run the workload alone: `reason` says why.
  std::shared_ptr<const PreparedRun> run;
  std::string reason;
};

/// One workload of a run, ready to start; the same on every rank.
struct PreparedRun {
  RunConfig config;  ///< effective: what was left to choose is chosen
  Placement placement;
  Workload workload;
  int groups = 0;                        ///< in a search; 0: one fixed model on all ranks
  std::string reproduce;                 ///< the command line that is this run
  std::optional<ChosenPlan> plan = {};   ///< for a fixed model
  std::vector<Baseline> baselines = {};  ///< on a mixed cluster
};

}  // namespace heteroperf
