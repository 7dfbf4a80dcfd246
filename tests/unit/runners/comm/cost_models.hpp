#pragma once

#include "metrics/base/random.hpp"
#include "runners/comm/selection/cost_model.hpp"

namespace heteroperf {

/// Of constant_model(): latency, time per byte one way, time per byte summed.
constexpr double alpha = 10e-6, beta = 1e-9, gamma_s = 0.25e-9;

LinkCurve line(double latency_s, double seconds_per_byte);
/// Straight lines; clusters of these sizes, one rank after another.
CostModel constant_model(const std::vector<int>& sizes);
/// Curves that rise, 1 to 3 clusters of 1 to 4 ranks.
CostModel random_model(RandomStream& random);
bool runs_on(Algorithm algorithm, const CostModel& model);

}  // namespace heteroperf
