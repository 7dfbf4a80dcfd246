#pragma once

#include "runners/plan/search/problem/planning_problem.hpp"

namespace heteroperf {

/// Constraints that relaxation_bound() counts beside whole layers and samples.
struct RelaxationTerms {
  bool filling = true, sums = true, memory = true;
  /// A stage keeps as many micro-batches as stages follow, and its own: so `1f1b`, `zb-h1`,
  /// `zb-h2`.
  bool counts = false;
};

/// Least step time of plans of one stage per position, with devices divisible: what every plan must
/// afford.
///
/// The relaxation asks for a step of T seconds and micro-batches of m samples. A stage of layers
/// [i, j) begins after one micro-batch has come through layers 0 … i−1, and sums and updates its
/// parameters after its last pass; what is left of T over the number of micro-batches is its
/// period. A replica of degree d of pool p takes at most k samples of these layers in a period, and
/// within its memory, so that m samples cost at least m · min d π_p / k, for any prices π of
/// devices. Where the cheapest cuts cost more than all devices, no plan takes T or less (Lagrange
/// duality).
///
/// The result is the least T between `least_s` > 0 and `most_s`, from below to the part `accuracy`;
/// `most_s` (which may be infinite) where none will do. The problem has passed check_problem().
double relaxation_bound(const PlanningProblem& problem, const RelaxationTerms& terms,
                        double least_s, double most_s, double accuracy);

}  // namespace heteroperf
