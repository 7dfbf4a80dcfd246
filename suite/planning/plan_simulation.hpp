#pragma once

#include <optional>
#include <string>
#include <vector>

#include "results/text/document.hpp"
#include "runners/plan/ready/ready_plan.hpp"
#include "runners/schedule/formats/trace_json.hpp"
#include "workloads/workload.hpp"

namespace heteroperf {

/// The conditions that a plan is simulated under; an empty one comes from the plan itself.
struct PlanSimulationRequest {
  std::string path;
  std::string workload, size, model, precision, cluster;
  /// Where neither the request nor the plan names a cluster, machine_beside().
  std::optional<Cluster> machine = {};
};

/// True where a file says that it is a plan; false for one that cannot be read.
bool is_plan_file(const std::string& path);

/// The workload that a plan was made for, or that the request names instead. Throws UserError with
/// everything that neither says.
Workload simulated_workload(const Plan& plan, const PlanSimulationRequest& request);

/// The cluster that a plan was made for, or that the request names instead, as the plan uses it.
/// Throws UserError with everything that neither says.
Cluster simulated_cluster(const Plan& plan, const PlanSimulationRequest& request);

/// The plan on the virtual clock, predicted, on its simulated_cluster(). Throws UserError with all
/// that is wrong with the plan.
ReadyPlan simulate_plan(Plan plan, const PlanSimulationRequest& request, const Cluster& cluster);

/// Adds a column for each use of a rank's memory, for programs; with_ledger() fills them.
void add_ledger_columns(Table& table);
std::vector<Datum> with_ledger(std::vector<Datum> row, const MemoryLedger& memory);

/// The times of one rank, in seconds of a step.
struct PlanRankTimes {
  double compute_s = 0;                ///< at its own replica's speed; the optimizer included
  double communication_exposed_s = 0;  ///< messages under way, and sums that nothing hides
  double idle_s = 0;                   ///< the rest of the step
};
std::vector<PlanRankTimes> plan_rank_times(const ReadyPlan& simulation);
/// 1 − Σ compute / (ranks · step): what a run measures as its bubble rate.
double not_computing(const ReadyPlan& simulation, const std::vector<PlanRankTimes>& times);

/// A trace of every rank at the speed of its own replica.
std::string plan_trace_text(const ReadyPlan& simulation, const TraceOrigin& origin);

}  // namespace heteroperf
