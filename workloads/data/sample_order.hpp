#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "metrics/base/error.hpp"
#include "metrics/base/random.hpp"
#include "workloads/data/data_source.hpp"

namespace heteroperf {

/// The numbers of the items of either split, each in rising order.
struct SplitLists {
  std::vector<std::uint32_t> train, validation;

  const std::vector<std::uint32_t>& operator[](Split split) const {
    return split == Split::train ? train : validation;
  }
};

/// Holds out the items with the lowest hashes: max(1, count / `one_in`) of them, and every further
/// item whose hash equals the highest of these, so that equal items never stand on both sides.
/// Either list may come out empty when there are too few distinct hashes.
SplitLists hold_out(std::span<const std::uint64_t> hashes, std::uint64_t one_in);

/// Takes the first `train` of `all` items for training, and the rest for validation.
SplitLists split_after(std::size_t train, std::size_t all);

/// A bijection on [0, size) that is chosen by a key and evaluated in O(1): a Feistel network over
/// the smallest power of two that is not below `size` (and not below 256), walked along its cycle
/// until it falls inside (Black and Rogaway 2002). From 129 items on it takes fewer than two
/// evaluations on average.
class KeyedPermutation {
 public:
  /// `size` lies in 1 … 2^62.
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
  // With fewer bits there are too few round functions for every order to be about as likely.
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
