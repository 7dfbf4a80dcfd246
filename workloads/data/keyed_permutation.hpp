#pragma once

#include <cstdint>

#include "metrics/base/error.hpp"
#include "metrics/base/random.hpp"

namespace heteroperf {

/// A bijection on [0, size) chosen by a key and evaluated in O(1): a Feistel network over the
/// smallest power of two that is not below `size` (and not below 256), walked along its cycle until
/// it falls inside (Black and Rogaway 2002; from 129 on fewer than two evaluations on average).
class KeyedPermutation {
 public:
  /// 0 < size ≤ 2^62.
  constexpr KeyedPermutation(std::uint64_t key, std::uint64_t size) : key_(key), size_(size) {
    HETEROPERF_EXPECT(size > 0 && size <= (std::uint64_t{1} << 62));
    int bits = fewest_bits;
    while ((std::uint64_t{1} << bits) < size) ++bits;
    right_bits_ = (bits + 1) / 2;
    left_mask_ = (std::uint64_t{1} << (bits / 2)) - 1;
    right_mask_ = (std::uint64_t{1} << right_bits_) - 1;
  }

  constexpr std::uint64_t operator()(std::uint64_t value) const {
    HETEROPERF_EXPECT(value < size_);
    do {
      value = encipher(value);
    } while (value >= size_);
    return value;
  }

 private:
  static constexpr int rounds = 6;
  // Below, too few round functions exist for every order to be about as likely.
  static constexpr int fewest_bits = 8;

  constexpr std::uint64_t encipher(std::uint64_t value) const {
    std::uint64_t left = value >> right_bits_, right = value & right_mask_;
    for (int round = 0; round < rounds; round += 2) {
      left ^= mix64(key_ ^ mix64(right + (static_cast<std::uint64_t>(round) << 56))) & left_mask_;
      right ^=
          mix64(key_ ^ mix64(left + (static_cast<std::uint64_t>(round + 1) << 56))) & right_mask_;
    }
    return (left << right_bits_) | right;
  }

  std::uint64_t key_, size_;
  std::uint64_t left_mask_ = 0, right_mask_ = 0;
  int right_bits_ = 0;
};

}  // namespace heteroperf
