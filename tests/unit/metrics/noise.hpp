#pragma once

#include <cmath>
#include <numbers>
#include <vector>

#include "metrics/base/random.hpp"

namespace heteroperf {

/// Normal deviates of a seeded stream (Box and Muller), for simulated studies.
class NoiseSource {
 public:
  explicit NoiseSource(std::uint64_t seed) : random_(seed) {}

  double normal() {
    const double radius = std::sqrt(-2 * std::log(1 - random_.unit()));
    return radius * std::cos(2 * std::numbers::pi * random_.unit());
  }
  std::vector<double> series(std::size_t count, double spread) {
    std::vector<double> values(count);
    for (double& value : values) value = spread * normal();
    return values;
  }

 private:
  RandomStream random_;
};

}  // namespace heteroperf
