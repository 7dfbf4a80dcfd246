#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace heteroperf {

/// What a run of a plan measured, on modelled time where its devices were emulated.
struct MeasuredPlan {
  std::string run_id;
  double step_time_s = 0;  ///< median of the steady window
  std::optional<double> samples_per_s;
  std::optional<double> bubble_rate;  ///< 1 − Σ compute / Σ wall over the ranks
};

/// Of the run whose `plan.json` this is; nothing where no journal with steps lies beside it. Throws
/// UserError or JournalError where the journal cannot be read.
std::optional<MeasuredPlan> measured_beside(const std::filesystem::path& plan_file);

/// Lines that set it beside the prediction.
std::string measured_text(const MeasuredPlan& measured, double predicted_step_s);

}  // namespace heteroperf
