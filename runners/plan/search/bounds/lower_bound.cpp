// The time that no plan can beat, and the reason for it.
//
// The bound is made of terms, each of which a plan cannot escape: the work of the whole batch
// spread over all devices without any loss; the way of one sample through the model; and, where
// each position has one stage, the terms of relaxation_bound(). They are added one after the other
// so that the report can say which of them binds. *Weights* of the layers are the dual variables of
// the fractional assignment of layers to pools: any weights give a valid bound, so a few good
// candidates are enough.
//
// The full relaxation is computed first. The partial ones lie between the bound before and that
// value, which gives their bisections both ends; where the two are close there is nothing to tell
// apart and the bisection is saved.
#include "runners/plan/search/bounds/lower_bound.hpp"

#include <algorithm>

#include "metrics/base/quantity.hpp"
#include "runners/plan/search/bounds/stage_relaxation.hpp"

namespace heteroperf {
namespace {

/// Device-seconds per sample and seconds per micro-batch of every layer on every pool, at their
/// least.
struct LeastTimes {
  std::vector<std::vector<double>> device_seconds;  ///< [pool][layer]; infinite: not known
  /// [layer]: its share in one sample's way, of any micro-batch on any device.
  std::vector<double> fastest;
};

LeastTimes least_times(const PlanningProblem& problem) {
  const std::size_t layers = problem.layers;
  LeastTimes least;
  least.fastest.assign(layers, infinite);
  for (const DevicePool& pool : problem.pools) {
    auto& row = least.device_seconds.emplace_back(layers, infinite);
    // A pool without devices keeps infinite times.
    if (pool.devices == 0) continue;
    for (std::size_t d = 0; d < problem.degrees.size(); ++d) {
      if (problem.degrees[d] > pool.devices_per_node) continue;
      for (std::size_t m = 0; m < pool.times[d].size(); ++m) {
        for (std::size_t l = 0; l < pool.times[d][m].size(); ++l) {
          const double time = pool.times[d][m][l].total();
          const double per_sample = time * problem.degrees[d] / static_cast<double>(m + 1);
          row[l] = std::min(row[l], per_sample);
          // Gradients of weights may wait until the way is through, but for those at its end.
          const double on_way = l == 0 ? time : time - pool.times[d][m][l].weight_gradient_s;
          least.fastest[l] = std::min(least.fastest[l], on_way);
        }
      }
    }
  }
  return least;
}

/// For any weights w of the layers: pool p does at most max_l(w_l / u_pl) of weighted work per
/// device and second, and batch · Σ w_l is to be done (weak duality of the fractional assignment).
double weighted_bound(const PlanningProblem& problem, const LeastTimes& least,
                      const std::vector<double>& weights) {
  double work = 0, rate = 0;
  for (const double weight : weights) work += weight * static_cast<double>(problem.batch);
  for (std::size_t p = 0; p < problem.pools.size(); ++p) {
    if (problem.pools[p].devices == 0) continue;
    double best = 0;
    for (std::size_t l = 0; l < weights.size(); ++l) {
      const double time = least.device_seconds[p][l];
      if (weights[l] > 0 && time < infinite) best = std::max(best, weights[l] / time);
    }
    rate += problem.pools[p].devices * best;
  }
  // A layer that takes no time has an infinite rate, and such weights say nothing.
  return rate > 0 && rate < infinite ? work / rate : 0;
}

/// The bound of the weights that say the most: each pool's own times, and those of all pools
/// together.
double work_bound(const PlanningProblem& problem, const LeastTimes& least) {
  std::vector<std::vector<double>> candidates = least.device_seconds;
  auto& harmonic = candidates.emplace_back(problem.layers, 0.0);
  for (std::size_t l = 0; l < harmonic.size(); ++l) {
    double rate = 0;
    for (std::size_t p = 0; p < problem.pools.size(); ++p) {
      const double time = least.device_seconds[p][l];
      if (time > 0 && time < infinite) rate += problem.pools[p].devices / time;
    }
    if (rate > 0) harmonic[l] = 1 / rate;
  }
  double most = 0;
  for (std::vector<double>& weights : candidates) {
    std::ranges::replace(weights, infinite, 0.0);
    most = std::max(most, weighted_bound(problem, least, weights));
  }
  return most;
}

/// The bounds that a relaxation of stages gives with all its terms, and with the first of them.
void add_stages(const PlanningProblem& problem, PlanBound& bound) {
  constexpr double fine = 1e-3, coarse = 4e-3;
  const double all = relaxation_bound(problem, {true, true, true}, bound.seconds, infinite, fine);
  // The relaxation found no step at all: a problem without plans keeps the simple bounds.
  if (!(all < infinite)) return;
  double before = bound.seconds;
  const auto add = [&](const char* name, const RelaxationTerms& terms) {
    before = all > before * (1 + coarse) ? relaxation_bound(problem, terms, before, all, coarse)
                                         : before;
    bound.constraints.push_back({name, before});
  };
  add("whole layers and samples", {false, false, false});
  add("filling the pipeline", {true, false, false});
  add("sums over replicas and optimizer", {true, true, false});
  bound.constraints.push_back({"memory", all});
  bound.seconds = all;
}

/// Adds the bound with counted stages, which is the tightest and the dearest.
void add_counts(const PlanningProblem& problem, PlanBound& bound) {
  constexpr double accuracy = 6e-3;
  const double all =
      relaxation_bound(problem, {true, true, true, true}, bound.seconds, infinite, accuracy);
  if (!(all < infinite)) return;
  bound.constraints.push_back({"memory of stages in turn", all});
  bound.seconds = all;
}

/// The term that adds the most to the work, or another where work is not what counts.
std::string binding_of(const PlanBound& bound) {
  const double work = bound.constraints[0].seconds;
  double most = 0.01 * work, before = work;
  std::string name = "work";
  for (std::size_t i = 1; i < bound.constraints.size(); ++i) {
    const double more = bound.constraints[i].seconds - before;
    if (more > most) most = more, name = bound.constraints[i].name;
    before = std::max(before, bound.constraints[i].seconds);
  }
  return name;
}

}  // namespace

PlanBound plan_bound(const PlanningProblem& problem, BoundScope scope) {
  const LeastTimes least = least_times(problem);
  double latency = 0;
  for (const double seconds : least.fastest) latency += seconds < infinite ? seconds : 0;
  PlanBound bound;
  bound.constraints = {{"work", work_bound(problem, least)}, {"latency", latency}};
  bound.seconds = std::max(bound.constraints[0].seconds, latency);
  if (scope != BoundScope::any_plan && bound.seconds > 0) add_stages(problem, bound);
  if (scope == BoundScope::one_chunk_in_turn && bound.seconds > 0) add_counts(problem, bound);
  bound.binding = binding_of(bound);
  return bound;
}

}  // namespace heteroperf
