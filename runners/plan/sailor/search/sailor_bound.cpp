#include "runners/plan/sailor/search/sailor_bound.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

namespace heteroperf {
namespace {

constexpr int rounds = 30;

/// [layer]: least device-seconds per sample.
std::vector<double> least_work(const SailorTables& tables, int place) {
  std::vector<double> result(static_cast<std::size_t>(tables.layers()),
                             std::numeric_limits<double>::infinity());
  for (const int tensor : tables.degrees(place)) {
    for (const std::int64_t size : tables.micro_batches(place, tensor)) {
      for (int layer = 0; layer < tables.layers(); ++layer) {
        const double time = tables.compute_s(place, tensor, size, layer, layer + 1);
        double& least = result[static_cast<std::size_t>(layer)];
        least = std::min(least, time * tensor / static_cast<double>(size));
      }
    }
  }
  return result;
}

/// Per sample, with λ_l the least over the places of u_pl / slowness_p.
double bound_of(const std::vector<std::vector<double>>& work, const std::vector<double>& counts,
                const std::vector<double>& slowness) {
  double sum = 0, rate = 0;
  for (std::size_t l = 0; l < work[0].size(); ++l) {
    double least = work[0][l] / slowness[0];
    for (std::size_t p = 1; p < work.size(); ++p) least = std::min(least, work[p][l] / slowness[p]);
    sum += least;
  }
  for (std::size_t p = 0; p < work.size(); ++p) rate += counts[p] / slowness[p];
  return sum / rate;
}

}  // namespace

double sailor_work_bound_s(const SailorTables& tables, const SailorDevices& devices) {
  std::vector<std::vector<double>> work;
  std::vector<double> counts;
  for (std::size_t p = 0; p < devices.size(); ++p) {
    if (devices[p] == 0 || tables.degrees(static_cast<int>(p)).empty()) continue;
    work.push_back(least_work(tables, static_cast<int>(p)));
    counts.push_back(devices[p]);
  }
  if (work.empty()) return 0;
  // From the whole model's ratios, place by place to a better one.
  std::vector<double> slowness;
  for (const std::vector<double>& one : work) {
    slowness.push_back(std::accumulate(one.begin(), one.end(), 0.0));
  }
  double bound = bound_of(work, counts, slowness);
  for (int round = 0; round < rounds; ++round) {
    for (double& own : slowness) {
      for (const double factor : {0.9, 0.98, 1.02, 1.1}) {
        own *= factor;
        const double better = bound_of(work, counts, slowness);
        if (better > bound) {
          bound = better;
        } else {
          own /= factor;
        }
      }
    }
  }
  return static_cast<double>(tables.global_batch()) * bound;
}

}  // namespace heteroperf
