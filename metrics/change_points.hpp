#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace heteroperf {

struct ChangePointRule {
  double p = 0.0004;            ///< largest two-sided p-value of Student's t between neighbours
  double penalty = 2.5;         ///< per change point, in units of variance · ln n
  std::size_t persistence = 2;  ///< fewest points on either side of a change
};

/// The level changes at `index`, the first point of the new one.
struct ChangePoint {
  std::size_t index = 0;
  double before = 0, after = 0;  ///< means of the neighbouring segments
  double p = 1;
};

/// Change points of a series with one spread, in order. The segmentation with the least sum of
/// squares + penalty (optimal partitioning, Jackson et al. 2005), the spread from differences of
/// neighbours; then the weakest change goes as long as any fails the t-test
/// between its neighbours. No random numbers: equal input, equal answer. O(n²) time.
std::vector<ChangePoint> find_change_points(std::span<const double> values,
                                            const ChangePointRule& rule = {});

}  // namespace heteroperf
