#pragma once

#include <string>
#include <vector>

#include "results/sweep/sweep_index.hpp"

namespace heteroperf {

/// A point and its place among all points, from 0.
struct PlacedPoint {
  std::size_t place = 0;
  SweepPoint point;
};

/// Which of the points' keys change together, as `SweepIndex::axes`: as many axes as have every
/// combination of their values at its place, the last axis changing first. The points may have gaps
/// and are at least one.
std::vector<std::vector<std::string>> swept_axes(const std::vector<PlacedPoint>& points);

}  // namespace heteroperf
