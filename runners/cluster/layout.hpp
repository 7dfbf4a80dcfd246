#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "metrics/base/id.hpp"

namespace heteroperf {

constexpr std::size_t max_layout_dims = 6;

/// The elements [first, last) along every dimension of a tensor.
struct Box {
  using Position = std::array<std::int64_t, max_layout_dims>;

  std::size_t dims = 0;
  Position first{}, last{};

  std::int64_t extent(std::size_t dim) const { return last[dim] - first[dim]; }
  /// Returns the number of elements; 1 without dimensions.
  std::int64_t count() const;
  friend bool operator==(const Box&, const Box&) = default;
};

/// Writes "[0,2)x[3,6)", and "scalar" without dimensions.
std::string to_string(const Box& box);

/// The spread of one tensor over ranks. Every dimension is cut into parts (uneven and empty ones
/// are allowed), a *tile* is one part of every dimension, and each tile is held by one or more
/// ranks.
///
/// A rank may hold several tiles. Its memory has them one after another by tile index, each dense
/// and row-major. Tiles are numbered in row-major order of their parts.
class Layout {
 public:
  using Shape = std::vector<std::int64_t>;

  /// Makes the layout of one scalar on rank 0.
  Layout();
  /// Takes `boundaries` per dimension, 0 = b₀ ≤ b₁ ≤ … = extent, and `holders` per tile in any
  /// order. No rank holds a tile twice, and each tile that has elements is held.
  Layout(Shape shape, std::vector<std::vector<std::int64_t>> boundaries,
         std::vector<std::vector<RankId>> holders);

  const Shape& shape() const { return shape_; }
  const std::vector<std::int64_t>& boundaries(std::size_t dim) const { return boundaries_[dim]; }
  std::size_t tiles() const { return holders_.size(); }
  Box box(std::size_t tile) const;
  /// Returns the ranks that hold a tile, ascending; it is empty only for an empty tile.
  const std::vector<RankId>& holders(std::size_t tile) const { return holders_[tile]; }
  /// Returns the tiles that a rank holds, ascending.
  std::vector<std::size_t> tiles_of(RankId rank) const;
  /// Returns every rank that holds a tile, ascending.
  std::vector<RankId> ranks() const;
  /// Returns the number of elements of the whole tensor.
  std::int64_t count() const;
  /// Returns the number of elements in this rank's memory.
  std::int64_t count(RankId rank) const;
  friend bool operator==(const Layout&, const Layout&) = default;

 private:
  Shape shape_;
  std::vector<std::vector<std::int64_t>> boundaries_;
  std::vector<std::vector<RankId>> holders_;
};

}  // namespace heteroperf
