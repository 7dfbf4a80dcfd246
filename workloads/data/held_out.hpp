#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace heteroperf {

/// Numbers of items per split, each in rising order.
struct SplitLists {
  std::vector<std::uint32_t> train, validation;
};

/// Holds out the items with the lowest hashes: max(1, count / `one_in`) of them, and every further
/// item whose hash equals the highest of these, so that equal items never stand on both sides.
/// Either list may come out empty when there are too few distinct hashes.
SplitLists hold_out(std::span<const std::uint64_t> hashes, std::uint64_t one_in);

/// The first `train` of `all` items for training, the others for validation.
SplitLists split_after(std::size_t train, std::size_t all);

}  // namespace heteroperf
