#pragma once

#include <vector>

#include "runners/plan/rivals/sailor/sailor_plan.hpp"

namespace heteroperf {

/// The plan's shares; of a plan without them one for all pipelines: as many equal micro-batches as
/// the global batch needs.
std::vector<SailorShare> shares_of(const SailorTables& tables, const SailorPlan& plan);

/// The parts of a plan's time and memory.
struct SailorReport {
  struct Stage {
    double compute_s = 0, communication_s = 0;  ///< one micro-batch, in the slowest pipeline
    double busy_s() const { return compute_s + communication_s; }
    double update_s = 0, reduction_s = 0;
    double memory_bytes = 0, memory_limit_bytes = 0;  ///< the replica that is nearest its limit
    bool fits() const { return memory_bytes <= memory_limit_bytes; }
  };
  double pipeline_s = 0;  ///< the slowest pipeline
  double update_s = 0, reduction_s = 0, step_time_s = 0;
  std::vector<Stage> stages;
};
/// Scores by Sailor's published formulas: `sailor` for a plan without shares, our extension
/// `sailor+` for one with them (README.md). Times are infinite where a profile or a link is
/// missing. The plan is one that check_sailor_plan() takes, but for missing profiles and links, and
/// for memory.
SailorReport sailor_report(const SailorTables& tables, const SailorPlan& plan);
/// The report's seconds of an optimizer step alone.
double sailor_step_time_s(const SailorTables& tables, const SailorPlan& plan);
/// True where every replica is within its device's memory.
bool fits_sailor_memory(const SailorTables& tables, const SailorPlan& plan);

/// Seconds of an optimizer step by exact simulation: the longest makespan of a pipeline, the sums
/// over replicas and the update (README.md). Throws UserError where check_sailor_entries() does, or
/// where the stages have unequal widths. Memory limits are not looked at.
double simulated_sailor_step_s(const SailorTables& tables, const SailorPlan& plan);

/// Throws UserError with everything wrong: layers that no stage or two have, stages of unequal
/// width where there are shares, samples that do not add up to the global batch, degrees beyond a
/// node, missing profiles and links by name, memory.
void check_sailor_plan(const SailorTables& tables, const SailorPlan& plan);
/// Checks the profiles and links alone, of a plan that is sound otherwise.
void check_sailor_entries(const SailorTables& tables, const SailorPlan& plan);

}  // namespace heteroperf
