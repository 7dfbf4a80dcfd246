#pragma once

#include <string>
#include <vector>

#include "runners/plan/search/planning_problem.hpp"

namespace heteroperf {

/// No plan of a problem takes less time per step.
struct PlanBound {
  double seconds = 0;
  std::string binding;  ///< the constraint that says so
  struct Constraint {
    std::string name;
    double seconds = 0;
  };
  std::vector<Constraint> constraints;  ///< all of them
};

/// Requires a problem that has passed check_problem(). Constraints:
/// "work": every layer does the batch on some pool, shares fractional, at the pool's best degree
/// and micro-batch; "latency": one sample's way through all layers, each on its fastest pool, and the
/// shortest exchange at the end; "work and all-reduce": the least of work with one stage's sum
/// over replicas, and of two or more stages with what the first and the last must wait.
PlanBound plan_bound(const PlanningProblem& problem);

}  // namespace heteroperf
