#pragma once

#include <vector>

#include "runners/plan/sailor/sailor_plan_json.hpp"
#include "runners/plan/sailor/sailor_tables.hpp"

namespace heteroperf {

/// What a machine adds to profiles and links (README.md). The defaults are those of no measurement.
struct SailorCalibration {
  double reduction_factor = 1;   ///< sum over replicas, measured over modelled
  double activation_factor = 1;  ///< bytes that the allocator holds per byte of activations
  double runtime_bytes = 2e9;    ///< of a device, beside states and activations
};

/// A plan by profiles, links and exact simulation of its pipelines.
struct SailorPrediction {
  double step_time_s = 0, pipeline_s = 0, reduction_s = 0, update_s = 0;
  std::vector<double> memory_bytes;  ///< [stage], of its fullest device
  double peak_memory_bytes = 0;
};

/// Throws UserError where check_sailor_plan() finds a missing profile or link, or where the stages
/// have unequal widths. Memory limits are not looked at.
SailorPrediction simulate_sailor_plan(const SailorInputs& inputs, const SailorTables& tables,
                                      const SailorPlan& plan,
                                      const SailorCalibration& calibration = {});

/// Least squares over what `runs` measured; what none of them measured keeps its default. With a
/// single run, or several alike, only the constant of memory is fitted.
SailorCalibration calibrate_sailor(const SailorInputs& inputs, const SailorTables& tables,
                                   const std::vector<SailorRun>& runs);

/// The plan of a run with as many micro-batches as its own global batch needs.
SailorPlan plan_of(const SailorRun& run, const SailorTables& tables);

}  // namespace heteroperf
