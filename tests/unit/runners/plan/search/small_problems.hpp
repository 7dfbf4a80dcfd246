#pragma once

#include <cstdint>
#include <random>

#include "runners/plan/search/problem/planning_problem.hpp"

namespace heteroperf {

/// A problem of 2 to 6 layers and up to 6 devices in up to 3 pools, in any combination: degrees 1
/// and 2, micro-batches of 1 and 2 samples per replica, a batch of up to 12, times that are no
/// multiples of each other, links from fast to slow, memory that leaves out a part of the plans.
inline PlanningProblem small_problem(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  const auto part = [&] { return static_cast<double>(random() >> 11) * 0x1p-53; };
  PlanningProblem problem;
  const int pools = 1 + below(3);
  int devices = 0;
  for (int p = 0; p < pools; ++p) {
    DevicePool pool;
    pool.name = pool.device_class = "pool" + std::to_string(p);
    // At least one is left for each pool that follows.
    pool.devices = 1 + below(6 - devices - (pools - 1 - p));
    pool.devices_per_node = 1 + below(2);
    pool.memory_bytes = 40 + 160 * part();
    pool.optimizer_rate = below(2) * 200.0;
    devices += pool.devices;
    problem.pools.push_back(pool);
  }
  problem.layers = 2 + below(5);
  problem.degrees = {1, 2};
  problem.most_samples = 2;
  constexpr std::int64_t batches[] = {2, 3, 4, 6, 8, 12};
  problem.batch = batches[below(6)];
  for (DevicePool& pool : problem.pools) {
    const double speed = 1 + 3 * part();
    for (const int degree : problem.degrees) {
      auto& of_degree = pool.times.emplace_back();
      for (int samples = 1; samples <= 2; ++samples) {
        auto& layers = of_degree.emplace_back();
        for (int l = 0; l < problem.layers; ++l) {
          const double forward = (0.5 + part()) * (0.3 + samples) / speed / (degree == 1 ? 1 : 1.7);
          layers.push_back(
              {forward, forward * (0.8 + 0.4 * part()), forward * (0.8 + 0.4 * part()), 0});
        }
      }
    }
  }
  for (const int degree : problem.degrees) {
    auto& of_degree = problem.bytes.emplace_back();
    for (int samples = 1; samples <= 2; ++samples) {
      auto& layers = of_degree.emplace_back();
      for (int l = 0; l < problem.layers; ++l) {
        const double kept = 6.0 * samples / degree, input = 1.0 * samples;
        layers.push_back({{kept, kept, input}, {kept, kept, kept}, {2, 2, 2}});
      }
    }
    auto& parameters = problem.parameters.emplace_back();
    for (int l = 0; l < problem.layers; ++l) parameters.push_back((1.0 + l % 2) / degree);
  }
  if (below(3) == 0) problem.tied_parameters = {0.5, 0.25};
  for (int l = 0; l + 1 < problem.layers; ++l) {
    problem.activation_bytes.push_back({1, 0.5, 0.25});
    problem.gradient_bytes.push_back({1, 0.5, 0.25});
  }
  problem.links.assign(problem.pools.size(), std::vector<LinkCurve>(problem.pools.size()));
  for (std::size_t a = 0; a < problem.pools.size(); ++a) {
    for (std::size_t b = 0; b <= a; ++b) {
      problem.links[a][b] = problem.links[b][a] =
          LinkCurve(Seconds(0.1 * part()), BytesPerSecond(1 + 40 * part()));
    }
  }
  return problem;
}

}  // namespace heteroperf
