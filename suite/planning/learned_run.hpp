#pragma once

#include <filesystem>
#include <string>

#include "runners/plan/plan.hpp"
#include "suite/planning/learned_rates.hpp"

namespace heteroperf {

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
