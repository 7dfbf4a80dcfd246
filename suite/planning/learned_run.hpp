#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "runners/cluster/efficiency_matrix.hpp"
#include "runners/plan/plan.hpp"

namespace heteroperf {

/// The lesson of a finished run about the machine that was described.
struct LearnedRun {
  struct DeviceTime {
    std::string device_class;
    int ranks = 0;
    double predicted_s = 0, measured_s = 0;  ///< computing, of a step, mean over the ranks
  };
  std::string run_id;
  Plan plan;
  std::vector<DeviceTime> classes;
  double measured_step_s = 0;   ///< median of the steady window, on modelled time where emulated
  double predicted_step_s = 0;  ///< from the description
  double relearned_step_s = 0;  ///< from the description with the learned rates
  /// Every rate of a class × predicted / measured, as `probe`.
  EfficiencyMatrix matrix;
};

/// From ranks of degree 1 alone where devices were emulated. Throws UserError where `run` is no
/// finished run of a plan, where it has no times by rank, or where it was not made on `cluster`
/// (measured_beside()).
LearnedRun learn_from_run(const std::filesystem::path& run, const Cluster& cluster);

}  // namespace heteroperf
