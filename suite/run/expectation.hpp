#pragma once

#include <string>
#include <vector>

#include "suite/run/prepared_run.hpp"

namespace heteroperf {

/// "llm micro on 2 ranks: set-up, 2 steps of warm-up, 60 s measured, 512 samples evaluated".
std::string course_text(const PreparedRun& run);

/// Tells how long one step and the whole run take where a step is predicted, and which --duration
/// would do where that leaves too few steps to measure; a line each, none without a prediction.
/// `mm_ops_per_second` is the rate of all ranks together on this machine, 0 where it is not known.
/// Emulated devices whose work needs more than half of it take longer than modelled.
std::vector<std::string> prediction_lines(const PreparedRun& run, double mm_ops_per_second);

}  // namespace heteroperf
