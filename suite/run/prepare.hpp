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
  /// Devices that the run holds: all of its cluster, or of the hosts that its ranks are on. Absent
  /// for a baseline, which is a part of a run.
  std::optional<int> allocated_devices = {};
};

/// The machine of one rank, for the scaling rule.
ScalingInput scaling_input(const Placement& placement, int ranks_on_host);

/// A process that only launches the ranks reads no data and no journals.
enum class Reading { everything, nothing };

/// The workloads that `config` names, made and checked: data opened, graphs built, sizes chosen.
/// Throws UserError for whatever cannot run, before anything is written. With Reading::nothing it
/// finds what is wrong with the configuration, and data and history that are not there; what it
/// returns then cannot run.
std::vector<PreparedRun> prepare_runs(const RunConfig& config, const PlanSources& sources,
                                      const Placement& placement, int ranks_on_host,
                                      Reading reading = Reading::everything);

/// Adds a problem where a workload needs more memory than there is. `needed_bytes` and `bindings`
/// by rank. Ranks without a GPU may each take `host_bytes` of their host (0: not known), on
/// average: what some leave, others may take. A rank on a GPU is held against all of that GPU's
/// memory, whoever shares it; the one that lacks most is named.
void check_memory(const Workload& workload, const std::vector<double>& needed_bytes,
                  const std::vector<RankBinding>& bindings, std::uint64_t host_bytes,
                  ProblemList& problems);

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
