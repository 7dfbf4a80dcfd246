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

/// Requires a problem that has passed check_problem(). Constraints: "work", every layer does the
/// batch on some pool, shares fractional, at the pool's best degree and micro-batch; "latency", one
/// sample's way through all layers, each on its fastest device; "work and all-reduce", of a model
/// that cannot be cut, the least over numbers of replicas of their work and their sum.
PlanBound plan_bound(const PlanningProblem& problem);

}  // namespace heteroperf
