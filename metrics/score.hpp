#pragma once

#include <optional>
#include <span>

#include "metrics/ops.hpp"
#include "metrics/quantity.hpp"

namespace heteroperf {

/// What one measured window did. Strict operations of the steps that ended in it.
struct WindowTotal {
  Ops operations;
  Seconds window;  ///< > 0
};

OpsPerSecond ops_per_second(const WindowTotal& total);

/// Σ operations / Σ window seconds over the workloads of a suite: not a mean of rates, so that a
/// short window weighs little.
OpsPerSecond suite_ops_per_second(std::span<const WindowTotal> totals);

/// −ln(error) × OPS (AIPerf, `score.py`): classifiers only, 0 ≤ error_rate ≤ 1. Nothing when no
/// sample was wrong, as −ln 0 is no number.
std::optional<OpsPerSecond> regulated_score(OpsPerSecond ops, double error_rate);

}  // namespace heteroperf
