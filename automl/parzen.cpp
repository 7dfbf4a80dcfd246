#include "automl/parzen.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

namespace heteroperf {
namespace {

constexpr std::size_t full_weight_count = 25;

/// Weight of observation `age_rank` (0 oldest) of n: a ramp from 1/n to 1, then 1.
double observation_weight(std::size_t age_rank, std::size_t n) {
  if (n <= full_weight_count || age_rank + full_weight_count >= n) return 1.0;
  const auto ramp = static_cast<double>(n - full_weight_count);
  const double lowest = 1.0 / static_cast<double>(n);
  return lowest + (1.0 - lowest) * static_cast<double>(age_rank) / ramp;
}

double normal_mass(double from, double to) {
  return 0.5 * (std::erfc(-to / std::numbers::sqrt2) - std::erfc(-from / std::numbers::sqrt2));
}

/// Two normal draws would do; one keeps the number of draws per sample simple.
double draw_normal(RandomStream& random) {
  const double radius = std::sqrt(-2.0 * std::log(1.0 - random.unit()));
  return radius * std::cos(2.0 * std::numbers::pi * random.unit());
}

/// Indices that sort `values`, equal ones in order.
std::vector<std::size_t> sorting_order(const std::vector<double>& values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return values[a] < values[b]; });
  return order;
}

}  // namespace

ParzenNumeric::ParzenNumeric(const std::vector<double>& values, double low, double high)
    : low_(low), high_(high) {
  const double range = high - low;
  const std::size_t n = values.size();
  std::vector<double> centres = values;
  centres.push_back(low + 0.5 * range);  // the prior is a neighbour like any other
  const std::vector<std::size_t> order = sorting_order(centres);
  const double narrowest = range / std::min(100.0, static_cast<double>(n) + 2.0);
  for (std::size_t place = 0; place <= n; ++place) {
    const std::size_t i = order[place];
    const double left = place > 0 ? centres[i] - centres[order[place - 1]] : 0.0;
    const double right = place < n ? centres[order[place + 1]] - centres[i] : 0.0;
    const double width = std::clamp(std::max(left, right), narrowest, range);
    kernels_.push_back(i == n ? Kernel{centres[i], range, 1.0, 0.0}
                              : Kernel{centres[i], width, observation_weight(i, n), 0.0});
  }
  for (Kernel& kernel : kernels_) {
    total_weight_ += kernel.weight;
    const double mass =
        normal_mass((low - kernel.centre) / kernel.width, (high - kernel.centre) / kernel.width);
    kernel.factor = kernel.weight / (kernel.width * std::sqrt(2.0 * std::numbers::pi) * mass);
  }
}

double ParzenNumeric::sample(RandomStream& random) const {
  double place = random.unit() * total_weight_;
  std::size_t i = 0;
  while (i + 1 < kernels_.size() && place >= kernels_[i].weight) place -= kernels_[i++].weight;
  // Centres lie inside and no kernel is wider than the range: a draw is inside at least every third
  // time.
  constexpr int attempts = 64;
  for (int attempt = 0; attempt < attempts; ++attempt) {
    const double x = kernels_[i].centre + kernels_[i].width * draw_normal(random);
    if (x >= low_ && x <= high_) return x;
  }
  return kernels_[i].centre;
}

double ParzenNumeric::log_density(double x) const {
  double sum = 0.0;
  for (const Kernel& kernel : kernels_) {
    const double u = (x - kernel.centre) / kernel.width;
    sum += kernel.factor * std::exp(-0.5 * u * u);
  }
  return std::log(sum / total_weight_);
}

ParzenCategorical::ParzenCategorical(const std::vector<double>& values, std::size_t choices) {
  const std::size_t n = values.size();
  const double smoothing = 1.0 / static_cast<double>(n + 1);
  const double scale = 1.0 / (static_cast<double>(choices) * smoothing + 1.0);
  double weight = 0.0;
  std::vector<double> hits(choices, 0.0);
  for (std::size_t i = 0; i < n; ++i) {
    const double w = observation_weight(i, n);
    hits[static_cast<std::size_t>(values[i])] += w;
    weight += w;
  }
  for (double hit : hits) {
    const double observed = (weight * smoothing + hit) * scale;
    probabilities_.push_back((observed + 1.0 / static_cast<double>(choices)) / (weight + 1.0));
  }
}

double ParzenCategorical::sample(RandomStream& random) const {
  double place = random.unit();
  std::size_t i = 0;
  while (i + 1 < probabilities_.size() && place >= probabilities_[i]) place -= probabilities_[i++];
  return static_cast<double>(i);
}

double ParzenCategorical::log_density(double choice) const {
  return std::log(probabilities_.at(static_cast<std::size_t>(choice)));
}

}  // namespace heteroperf
