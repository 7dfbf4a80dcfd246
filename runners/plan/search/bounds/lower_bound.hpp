#pragma once

#include <string>
#include <vector>

#include "runners/plan/search/problem/planning_problem.hpp"

namespace heteroperf {

/// No plan of a problem takes less time per step.
struct PlanBound {
  double seconds = 0;
  std::string binding;  ///< the constraint that says so
  struct Constraint {
    std::string name;
    double seconds = 0;
  };
  std::vector<Constraint> constraints;  ///< all of them, each with what the ones before it say
};

/// Which plans a bound is of.
enum class BoundScope {
  /// Plans of one chunk under `1f1b` with any warm-up, `zb-h1`, `zb-h2` or `gpipe`.
  one_chunk_in_turn,
  one_stage_per_position,  ///< every plan of one chunk and one direction
  any_plan,
};

/// Requires a problem that has passed check_problem(). README.md (Lower bound) has the argument.
/// Constraints: "work", every layer does the batch on some pool, shares fractional, at the pool's
/// best degree and micro-batch; "latency", one sample's way through all layers and
/// back, each on its fastest device; and of plans of one stage per position, each added to those
/// before: "whole layers and samples", "filling the pipeline", "sums over replicas and optimizer",
/// "memory".
PlanBound plan_bound(const PlanningProblem& problem,
                     BoundScope scope = BoundScope::one_chunk_in_turn);

}  // namespace heteroperf
