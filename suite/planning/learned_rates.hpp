#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "runners/cluster/efficiency_matrix.hpp"
#include "runners/plan/ready/ready_plan.hpp"

namespace heteroperf {

/// The computing of a device class in a step, in the mean over its ranks.
struct DeviceTime {
  std::string device_class;
  int ranks = 0;
  double predicted_s = 0, measured_s = 0;
  /// The class runs so many times as fast as it was thought to.
  double speed() const { return predicted_s / measured_s; }
};

/// The lesson of the ranks of one plan about the machine that they ran on.
struct LearnedRates {
  std::vector<DeviceTime> classes;  ///< that were measured
  EfficiencyMatrix matrix;          ///< every rate of such a class × its speed, as `probe`
};

/// [rank] seconds of a step in which it computes, while messages take no time. `used` is the
/// machine as the plan uses it, and the plan's own efficiency takes the place of its rates.
std::vector<double> computing_s(const TrainingTask& task, const Plan& plan, const Cluster& used);

/// Compares what ranks measured, [rank] seconds of computing in a step, with what computing_s()
/// predicts of their plan on `used`, whose rates are all that is known. Ranks without a value are
/// left out. `source` names the measurement. Throws UserError where a class is a hundred times
/// faster or slower: that was measured elsewhere.
LearnedRates learn_rates(const Cluster& used, Precision precision,
                         const std::vector<double>& predicted_s,
                         const std::vector<std::optional<double>>& measured_s,
                         const std::string& source);

/// The lesson of a finished run about the machine that was described.
struct LearnedRun : LearnedRates {
  std::string run_id;
  Plan plan;
  double measured_step_s = 0;   ///< median of the steady window, on modelled time where emulated
  double predicted_step_s = 0;  ///< from the description
  double relearned_step_s = 0;  ///< from the description with the learned rates
};

/// From ranks of degree 1 alone where devices were emulated. Throws UserError where `run` is no
/// finished run of a plan, where it has no times by rank, or where it was not made on `cluster`
/// (measured_beside()).
LearnedRun learn_from_run(const std::filesystem::path& run, const Cluster& cluster);

}  // namespace heteroperf
