#include "runners/engine/checkpoint/held_tensor.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "metrics/base/error.hpp"
#include "metrics/base/random.hpp"

namespace heteroperf {
namespace {

/// Calls visit(position, element) for every element of the piece.
template <class Visit>
void for_each_element(const TensorPiece& piece, Visit visit) {
  Box::Position at = piece.box.first;
  for (std::int64_t i = 0; i < piece.box.count(); ++i) {
    std::int64_t offset = 0;
    for (std::size_t dim = 0; dim < piece.box.dims; ++dim) {
      offset += (at[dim] - piece.box.first[dim]) * piece.strides[dim];
    }
    visit(at, static_cast<std::int64_t*>(piece.data)[offset]);
    for (std::size_t dim = piece.box.dims; dim-- > 0;) {
      if (++at[dim] < piece.box.last[dim]) break;
      at[dim] = piece.box.first[dim];
    }
  }
}

/// The definition, element by element: where memory element `index` lies in the whole tensor.
Box::Position position_of(const HeldTensor& held, std::int64_t index) {
  std::vector<std::int64_t> rows;  // of `dim`, as memory has them
  for (const auto& one : held.intervals) {
    for (std::int64_t i = 0; i < one.count; ++i) rows.push_back(one.first + i);
  }
  Box::Position position{};
  for (std::size_t level = held.order.size(); level-- > 0;) {
    const std::size_t dim = held.order[level];
    const auto extent = dim == held.dim ? static_cast<std::int64_t>(rows.size()) : held.shape[dim];
    position[dim] = index % extent;
    index /= extent;
  }
  position[held.dim] = rows[static_cast<std::size_t>(position[held.dim])];
  return position;
}

HeldTensor random_tensor(RandomStream& random) {
  const auto draw = [&](std::uint64_t below) {
    return static_cast<std::int64_t>(random.below(below));
  };
  HeldTensor held{"w", StoredType::i64, {}, 0, {}, {}, nullptr};
  const std::size_t dims = 1 + random.below(4);
  for (std::size_t i = 0; i < dims; ++i) held.shape.push_back(1 + draw(5));
  held.order.resize(dims);
  std::iota(held.order.begin(), held.order.end(), std::size_t{0});
  for (std::size_t i = dims; i > 1; --i) std::swap(held.order[i - 1], held.order[random.below(i)]);
  held.dim = random.below(dims);
  const std::int64_t extent = held.shape[held.dim];
  const std::int64_t first = draw(static_cast<std::uint64_t>(extent));
  const std::int64_t split = first + draw(static_cast<std::uint64_t>(extent - first) + 1);
  held.intervals = {{split, extent - split}, {first, split - first}};
  return held;
}

TEST(HeldTensor, PiecesOfARangeAreItsElements) {
  RandomStream random(6);
  for (int round = 0; round < 300; ++round) {
    HeldTensor held = random_tensor(random);
    std::vector<std::int64_t> memory(static_cast<std::size_t>(held_count(held)));
    std::iota(memory.begin(), memory.end(), 0);
    const auto first = static_cast<std::int64_t>(random.below(memory.size() + 1));
    const auto last =
        first + static_cast<std::int64_t>(random.below(memory.size() + 1 - std::size_t(first)));
    held.data = memory.data() + first;
    std::vector<std::int64_t> seen;
    for (const TensorPiece& piece : pieces_of_range(held, first, last)) {
      for_each_element(piece, [&](const Box::Position& at, std::int64_t element) {
        EXPECT_EQ(at, position_of(held, element)) << to_string(piece.box);
        seen.push_back(element);
      });
    }
    std::sort(seen.begin(), seen.end());
    EXPECT_EQ(seen, std::vector<std::int64_t>(memory.begin() + first, memory.begin() + last));
  }
}

TEST(HeldTensor, AWholeTensorIsOnePiece) {
  std::vector<std::int64_t> memory(24);
  const HeldTensor held{"w", StoredType::i64, {2, 3, 4}, 0, {}, {}, memory.data()};
  const auto pieces = pieces_of(held);
  ASSERT_EQ(pieces.size(), 1u);
  EXPECT_EQ(pieces[0].box, whole_box({2, 3, 4}));
  EXPECT_EQ(pieces[0].strides, dense_strides(whole_box({2, 3, 4})));
  EXPECT_EQ(pieces[0].data, memory.data());
}

TEST(HeldTensor, AScalarIsOnePiece) {
  std::int64_t value = 5;
  const HeldTensor held{"n", StoredType::i64, {}, 0, {}, {}, &value};
  ASSERT_EQ(pieces_of(held).size(), 1u);
  EXPECT_EQ(pieces_of(held)[0].data, &value);
  EXPECT_TRUE(pieces_of_range(held, 1, 1).empty());
}

TEST(HeldTensor, RangesAndIntervalsOutsideAreBugs) {
  HeldTensor held{"w", StoredType::f32, {4, 2}, 0, {{2, 2}}, {}, nullptr};
  EXPECT_EQ(held_count(held), 4);
  EXPECT_THROW(pieces_of_range(held, 0, 5), Error);
  EXPECT_THROW(pieces_of_range(held, 3, 2), Error);
  held.intervals = {{3, 2}};
  EXPECT_THROW(pieces_of(held), Error);
}

}  // namespace
}  // namespace heteroperf
