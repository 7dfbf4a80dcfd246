#pragma once

#include <optional>
#include <string>
#include <vector>

#include "results/journal/events.hpp"
#include "runners/engine/training.hpp"
#include "runners/plan/even_plan.hpp"
#include "runners/plan/ready/ready_plan.hpp"
#include "suite/config/placement.hpp"
#include "suite/config/run_config.hpp"
#include "suite/planning/plan_sources.hpp"
#include "workloads/workload.hpp"

namespace heteroperf {

/// The plan of a fixed model, ready, and the devices that it runs on; the same on every rank.
struct ChosenPlan : ReadyPlan {
  /// Times that emulated devices keep to: those of the description, whatever the plan knows better.
  std::optional<StageTimes> paced;
  std::optional<Pacing::Change> paced_change;  ///< that `pace.slow` asks for
  bool emulated = false;
  std::vector<std::string> devices;  ///< [rank] the device that computes (RankBinding::device)
  std::vector<std::uint64_t> chip_bytes = {};  ///< [rank] an emulated chip's memory; 0: no limit

  /// The rank's class in the cluster; on a machine that nobody described, the device that computes.
  std::string device_class(int rank) const;
};

/// The planner's answer to a run, whose ranks all have a part in every plan of it.
struct SearchedPlan {
  std::optional<ReadyPlan> best;  ///< none where every plan that was found leaves devices idle
  std::uint64_t candidates = 0;
  double seconds = 0;
};

/// Searches the fastest plan of `samples` per step for all devices of `used`, which outlives the
/// result's use of it. Throws UserError where the workload fits nowhere.
SearchedPlan search_plan(const Workload& workload, const Cluster& used, std::uint64_t samples,
                         double time_limit_s);

/// The plan of the file, or an even one of the configuration's degrees, checked against the model
/// and the cluster. Throws UserError with everything wrong.
ChosenPlan choose_plan(const RunConfig& config, PlanSources sources, const Workload& workload,
                       const Placement& placement);
/// As above, of a plan already made.
ChosenPlan complete_plan(Plan plan, const Workload& workload, std::optional<Cluster> cluster);
/// Lets a class of the plan's emulated devices become slower in mid-run, but not what is known of
/// it. Throws UserError where the plan has no such class, or its devices are real.
void slow_down(ChosenPlan& chosen, const Workload& workload, const Slowdown& slowdown);
/// The description of its workload that a plan carries, so that it can be simulated by itself.
PlanWorkload plan_workload(const Workload& workload);

/// "pp 2 x tp 1 x dp 1, zb-h1, 8 micro-batches of 4"; uneven parts as they are ("dp 1..3").
std::string summary_text(const Plan& plan);
/// The part of the model that a rank holds: "stages 0,2; tensor 1 of 2"; empty: all of it.
std::string held_share(const Plan& plan, const RankRole& role);

/// The journal's lines about the plan: one for every rank, and the prediction or why there is none.
std::vector<Event> plan_events(const ChosenPlan& chosen);

}  // namespace heteroperf
