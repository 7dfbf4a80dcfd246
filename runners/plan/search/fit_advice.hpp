#pragma once

#include <vector>

#include "metrics/base/error.hpp"
#include "runners/plan/search/problem/planning_problem.hpp"

namespace heteroperf {

/// Longer than any step: memory alone decides.
inline constexpr double any_period_s = 1e30;

/// Why no plan of a problem fits the memory of its devices: how much more each would need, and how
/// many more of them. Where it is not the memory: which tables are empty.
std::vector<Problem> fit_problems(const PlanningProblem& problem);

}  // namespace heteroperf
