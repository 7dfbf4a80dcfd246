#pragma once

#include "runners/plan/search/problem/planning_problem.hpp"

namespace heteroperf {

/// The least step time over every 1f1b plan of a problem, one after the other and without any
/// bound: all micro-batches, cuts, replicas of every stage, degrees, idle devices, recomputation
/// none or full, ZeRO-1 or not. Its own formulas and its own clock. Infinite where nothing fits.
double brute_force_step_time(const PlanningProblem& problem);

}  // namespace heteroperf
