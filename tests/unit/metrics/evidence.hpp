#pragma once

#include <cmath>

#include "metrics/sequential_test.hpp"

namespace heteroperf {

/// What so many blocks of these means and spreads leave.
inline Evidence evidence(double mean, double spread, std::size_t blocks, double control_spread) {
  const double root = std::sqrt(static_cast<double>(blocks));
  const auto degrees = static_cast<double>(blocks - 1);
  return {{mean, spread / root, degrees}, {0, control_spread / root, degrees}, blocks};
}

}  // namespace heteroperf
