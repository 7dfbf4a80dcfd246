#pragma once

#include <cmath>
#include <span>

#include "metrics/sequential_test.hpp"

namespace heteroperf {

/// What so many blocks of these means and spreads leave.
inline Evidence evidence(double mean, double spread, std::size_t blocks, double control_spread) {
  const double root = std::sqrt(static_cast<double>(blocks));
  const auto degrees = static_cast<double>(blocks - 1);
  return {{mean, spread / root, degrees}, {0, control_spread / root, degrees}, blocks};
}

/// The judgement of one case by itself.
inline Judgement judged(const Evidence& one, const SequentialRule& rule = {}) {
  return judge_evidence(std::span(&one, 1), rule).front();
}

}  // namespace heteroperf
