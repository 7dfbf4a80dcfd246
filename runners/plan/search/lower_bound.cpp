#include "runners/plan/search/lower_bound.hpp"

#include <algorithm>
#include <limits>

namespace heteroperf {
namespace {

constexpr double infinite = std::numeric_limits<double>::infinity();

double total(const LayerTimes& t) { return t.forward_s + t.input_gradient_s + t.weight_gradient_s; }

/// Device-seconds per sample and seconds per micro-batch of every layer on every pool, at their
/// least.
struct LeastTimes {
  std::vector<std::vector<double>> device_seconds;  ///< [pool][layer]; infinite: not known
  std::vector<double> fastest;                      ///< [layer]: any micro-batch, any device
};

LeastTimes least_times(const PlanningProblem& problem) {
  const auto layers = static_cast<std::size_t>(problem.layers);
  LeastTimes least;
  least.fastest.assign(layers, infinite);
  for (const DevicePool& pool : problem.pools) {
    auto& row = least.device_seconds.emplace_back(layers, infinite);
    if (pool.devices == 0) continue;
    for (std::size_t d = 0; d < problem.degrees.size(); ++d) {
      if (problem.degrees[d] > pool.devices_per_node) continue;
      for (std::size_t m = 0; m < pool.times[d].size(); ++m) {
        for (std::size_t l = 0; l < pool.times[d][m].size(); ++l) {
          const double time = total(pool.times[d][m][l]);
          const double per_sample = time * problem.degrees[d] / static_cast<double>(m + 1);
          row[l] = std::min(row[l], per_sample);
          least.fastest[l] = std::min(least.fastest[l], time);
        }
      }
    }
  }
  return least;
}

/// What some weights of the layers say: `work` is to be done, by devices of at most these rates.
struct WeightedWork {
  double work = 0;
  std::vector<double> rates;  ///< [pool], of one device
};

/// For any weights w of the layers: pool p does at most max_l(w_l / u_pl) of weighted work per
/// device and second, and batch · Σ w_l is to be done (weak duality of the fractional assignment).
WeightedWork weighted_work(const PlanningProblem& problem, const LeastTimes& least,
                           const std::vector<double>& weights) {
  WeightedWork result;
  for (const double one : weights) result.work += one * static_cast<double>(problem.batch);
  for (std::size_t p = 0; p < problem.pools.size(); ++p) {
    double best = 0;
    for (std::size_t l = 0; l < weights.size(); ++l) {
      const double time = least.device_seconds[p][l];
      if (weights[l] > 0 && time < infinite) best = std::max(best, weights[l] / time);
    }
    result.rates.push_back(best);
  }
  return result;
}

double seconds_of(const WeightedWork& work, const PlanningProblem& problem) {
  double rate = 0;
  for (std::size_t p = 0; p < problem.pools.size(); ++p) {
    if (problem.pools[p].devices > 0) rate += problem.pools[p].devices * work.rates[p];
  }
  return rate > 0 && rate < infinite ? work.work / rate : 0;
}

/// The weights that say the most: each pool's own times, and those of all pools together.
WeightedWork best_weights(const PlanningProblem& problem, const LeastTimes& least) {
  std::vector<std::vector<double>> candidates = least.device_seconds;
  auto& harmonic = candidates.emplace_back(static_cast<std::size_t>(problem.layers), 0.0);
  for (std::size_t l = 0; l < harmonic.size(); ++l) {
    double rate = 0;
    for (std::size_t p = 0; p < problem.pools.size(); ++p) {
      const double time = least.device_seconds[p][l];
      if (time > 0 && time < infinite) rate += problem.pools[p].devices / time;
    }
    if (rate > 0) harmonic[l] = 1 / rate;
  }
  WeightedWork best;
  double most = -1;
  for (std::vector<double>& weights : candidates) {
    std::replace(weights.begin(), weights.end(), infinite, 0.0);
    const WeightedWork work = weighted_work(problem, least, weights);
    const double seconds = seconds_of(work, problem);
    if (seconds > most) most = seconds, best = work;
  }
  return best;
}

/// Ring all-reduce with the fastest link there is.
double least_ring(const PlanningProblem& problem, double replicas, double elements) {
  double latency = infinite, seconds_per_byte = infinite;
  for (const auto& row : problem.links) {
    for (const LinkCurve& link : row) {
      if (link.empty()) continue;
      latency = std::min(latency, link.latency().value());
      seconds_per_byte = std::min(seconds_per_byte, 1 / link.bandwidth().value());
    }
  }
  if (replicas < 2 || latency == infinite) return 0;
  return 2 * (replicas - 1) / replicas * elements * problem.master_bytes * seconds_per_byte +
         2 * (replicas - 1) * latency;
}

/// A plan of one stage with n replicas uses at most the n · (largest degree) fastest devices, and
/// sums all parameters over its replicas when their work is done.
double one_stage_bound(const PlanningProblem& problem, const WeightedWork& work) {
  std::vector<double> rates;
  for (std::size_t p = 0; p < problem.pools.size(); ++p) {
    rates.insert(rates.end(), static_cast<std::size_t>(std::max(0, problem.pools[p].devices)),
                 work.rates[p]);
  }
  std::sort(rates.rbegin(), rates.rend());
  double elements = infinite;
  for (const std::vector<double>& of_degree : problem.parameters) {
    double sum = 0;
    for (const double one : of_degree) sum += one;
    elements = std::min(elements, sum);
  }
  const auto most_degree = static_cast<std::size_t>(problem.degrees.back());
  double least = infinite, rate = 0;
  std::size_t used = 0;
  for (std::size_t replicas = 1; used < rates.size(); ++replicas) {
    for (const std::size_t end = std::min(rates.size(), replicas * most_degree); used < end;) {
      rate += rates[used++];
    }
    const double work_s = rate > 0 && rate < infinite ? work.work / rate : 0;
    least = std::min(least, work_s + least_ring(problem, static_cast<double>(replicas), elements));
  }
  return least;
}

}  // namespace

PlanBound plan_bound(const PlanningProblem& problem) {
  const LeastTimes least = least_times(problem);
  const WeightedWork work = best_weights(problem, least);
  double latency = 0;
  for (const double one : least.fastest) latency += one < infinite ? one : 0;
  PlanBound bound;
  bound.constraints = {{"work", seconds_of(work, problem)}, {"latency", latency}};
  // Of several stages the sums may be over one replica each.
  if (problem.layers == 1) {
    bound.constraints.push_back({"work and all-reduce", one_stage_bound(problem, work)});
  }
  for (const PlanBound::Constraint& one : bound.constraints) {
    if (!bound.binding.empty() && one.seconds <= bound.seconds) continue;
    bound.seconds = one.seconds;
    bound.binding = one.name;
  }
  return bound;
}

}  // namespace heteroperf
