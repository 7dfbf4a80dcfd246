#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "suite/config/placement.hpp"
#include "suite/config/run_config.hpp"
#include "suite/planning/chosen_plan.hpp"
#include "suite/ranks/rank_context.hpp"
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

/// Runs one workload on this rank, from measuring the peak to the last event. Collective over the
/// world. The stop line is left to the caller.
ProgramEnd run_workload(const PreparedRun& run, World& world, Engine& engine,
                        const FirstRank& first);

/// Each class of the run's cluster alone, where there are several: as many devices, the same
/// samples per step, its own best plan. Empty where nothing is predicted and no baselines are
/// wanted.
std::vector<Baseline> choose_baselines(const PreparedRun& run);

/// Runs the baselines one after another, each in a folder of its own below the run's, and puts what
/// they did into the run's journal; without `with_baselines` only what is predicted of them.
/// Collective over the world, after run_workload().
ProgramEnd run_baselines(const PreparedRun& run, World& world, Engine& engine,
                         const FirstRank& first);

/// "llm micro on 2 ranks: set-up, 2 steps of warm-up, 60 s measured, 512 samples evaluated".
std::string course_text(const PreparedRun& run);

/// Tells how long one step and the whole run take where a step is predicted, and which --duration
/// would do where that leaves too few steps to measure; a line each, none without a prediction.
/// `mm_ops_per_second` is the rate of all ranks together on this machine, 0 where it is not known.
/// Emulated devices whose work needs more than half of it take longer than modelled.
std::vector<std::string> prediction_lines(const PreparedRun& run, double mm_ops_per_second);

}  // namespace heteroperf
