#pragma once

#include <cstddef>
#include <cstdint>

#include "runners/comm/communicator.hpp"

namespace heteroperf {

/// Test data that tells a wrong result from a right one bit for bit. Every rank's elements are
/// random integers times a power of two, so small that the sum over all ranks is exact in `type` in
/// any order of adding. Any rank makes any element in O(1), and the expected result in O(ranks).
/// Averages are the exact sum divided once.
struct ExactValues {
  DataType type = DataType::f32;
  int ranks = 1;
  std::uint64_t seed = 1;

  /// Writes the elements [first, first + out.count) of a rank.
  void fill(RankId rank, std::size_t first, MutableBuffer out) const;
  /// Returns a bound: no element is larger.
  double largest() const;
  /// Writes the result of reducing all ranks' elements.
  void fill_reduced(Reduction reduction, std::size_t first, MutableBuffer out) const;
};

/// The distance from the truth that an element may have.
struct Tolerance {
  int ulps = 0;         ///< steps of the type, around the expected value
  double absolute = 0;  ///< for a compressed wire; float32 only
};

/// The findings of a comparison.
struct Deviation {
  std::uint64_t wrong = 0;                 ///< elements beyond the tolerance
  double largest = 0, sum_of_squares = 0;  ///< |got − expected|, where it is a number

  Deviation& operator+=(const Deviation& part);
};

/// Compares two buffers of the same count and type. NaN is right only where NaN is expected.
Deviation deviation(ConstBuffer got, ConstBuffer expected, const Tolerance& tolerance);

}  // namespace heteroperf
