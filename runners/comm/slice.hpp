#pragma once

#include <algorithm>
#include <cstddef>
#include <numeric>

#include "metrics/base/error.hpp"
#include "runners/comm/communicator.hpp"

namespace heteroperf {

/// The elements [begin, begin + count) of a vector. Collectives cut vectors in three ways: into
/// even *slices*, one per rank; into *blocks* whose sizes the caller gives, one per rank; and into
/// *segments* of a fixed size, which travel one after another.
struct Slice {
  std::size_t begin = 0, count = 0;
  std::size_t end() const { return begin + count; }
};

/// Slice `index` of `slices`. All have the same size up to `unit` elements, each begins at a
/// multiple of `unit`, and some may be empty.
inline Slice even_slice(std::size_t count, std::size_t index, std::size_t slices,
                        std::size_t unit) {
  const std::size_t units = (count + unit - 1) / unit;
  const auto begin = [&](std::size_t i) { return std::min(count, units * i / slices * unit); };
  return {begin(index), begin(index + 1) - begin(index)};
}

/// Segment `index` of a slice that is cut every `segment` elements; empty past its end.
inline Slice segment_of(Slice whole, std::size_t index, std::size_t segment) {
  const std::size_t begin = std::min(whole.count, index * segment);
  return {whole.begin + begin, std::min(segment, whole.count - begin)};
}

/// The number of elements of all blocks together.
inline std::size_t total_of(Counts counts) {
  return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
}

/// The block of `rank` among blocks that lie one after another in rank order.
inline Slice block_of(Counts counts, std::size_t rank) {
  return {total_of(counts.first(rank)), counts[rank]};
}

/// Calls visit(rank, block) for every block, in rank order.
template <class Visit>
void for_each_block(Counts counts, Visit visit) {
  Slice block;
  for (std::size_t rank = 0; rank < counts.size(); ++rank) {
    block = {block.end(), counts[rank]};
    visit(rank, block);
  }
}

inline std::size_t largest_of(Counts counts) { return *std::ranges::max_element(counts); }

/// True when all blocks have the same size.
inline bool are_equal(Counts counts) {
  return std::ranges::adjacent_find(counts, std::ranges::not_equal_to()) == counts.end();
}

/// Checks the arguments of an all_gather or a reduce_scatter: `block` is this rank's one of `all`.
inline void check_blocks(const Communicator& group, Counts counts, ConstBuffer block,
                         ConstBuffer all) {
  HETEROPERF_EXPECT(std::ssize(counts) == group.size() && all.count == total_of(counts));
  HETEROPERF_EXPECT(block.count == counts[group.rank().index()] && block.type == all.type);
}
/// Checks the arguments of an all_to_all, but for the block that a rank keeps.
inline void check_exchange(const Communicator& group, ConstBuffer input, Counts to_each,
                           ConstBuffer result, Counts from_each) {
  HETEROPERF_EXPECT(std::ssize(to_each) == group.size() && std::ssize(from_each) == group.size());
  HETEROPERF_EXPECT(input.count == total_of(to_each) && result.count == total_of(from_each) &&
                    input.type == result.type);
}

/// The elements of a slice as a buffer.
template <class Buffer>
Buffer part_of(const Buffer& buffer, Slice slice) {
  return buffer.part(slice.begin, slice.count);
}

}  // namespace heteroperf
