#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace heteroperf {

/// A change of level. `index` is the first point of the new level.
struct ChangePoint {
  std::size_t index = 0;
  double before = 0, after = 0;  ///< means of the neighbouring segments
  double p = 1;
};

/// Finds the change points of a series that has the same spread everywhere, in order. It takes the
/// segmentation with the least sum of squares + penalty (optimal partitioning, Jackson et al.
/// 2005), the spread estimated from differences of neighbours. Then it removes the weakest change
/// as long as any fails the t-test between its neighbours. It uses no random numbers: equal input
/// gives an equal answer. The time is O(n²).
std::vector<ChangePoint> find_change_points(std::span<const double> values);

}  // namespace heteroperf
