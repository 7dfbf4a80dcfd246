#pragma once

#include <cstddef>
#include <cstdint>

#include "runners/comm/communicator.hpp"

namespace heteroperf {

/// Test data that tells a wrong result from a right one bit for bit: every rank's elements are
/// random integers times a power of two, small enough that the sum over all ranks is exact in
/// `type` in whatever order it is made. Any rank makes any element in O(1), the expected one in
/// O(ranks). Averages are the exact sum divided once.
struct ExactValues {
  DataType type = DataType::f32;
  int ranks = 1;
  std::uint64_t seed = 1;

  /// Elements [first, first + out.count) of that rank.
  void fill(RankId rank, std::size_t first, MutableBuffer out) const;
  /// No element is larger than this.
  double largest() const;
  /// What reducing all ranks' elements gives.
  void fill_reduced(Reduction reduction, std::size_t first, MutableBuffer out) const;
};

/// How far from the truth an element may be.
struct Tolerance {
  int ulps = 0;         ///< steps of the type, around the expected value
  double absolute = 0;  ///< of a compressed wire; float32 only
};

/// What comparing found.
struct Deviation {
  std::uint64_t wrong = 0;
  double largest = 0, sum_of_squares = 0;  ///< |got − expected|, where it is a number
};

/// Both hold the same count and type. NaN is right only where NaN is expected.
Deviation deviation(ConstBuffer got, ConstBuffer expected, const Tolerance& tolerance);

}  // namespace heteroperf
