#pragma once

#include <cstddef>
#include <vector>

#include "runners/engine/checkpoint/checkpoint.hpp"

namespace heteroperf {

/// A box of a tensor in memory.
struct StridedView {
  Box box;
  TensorPiece::Strides strides{};  ///< elements
  std::byte* data = nullptr;       ///< the element at `box.first`
};

/// The elements of both; dims must be equal. Its count is 0 where they share none.
Box intersection(const Box& a, const Box& b);

/// Copies the elements of `box`, which lies within both views, of 2, 4 or 8 bytes each.
void copy_box(const Box& box, const StridedView& from, const StridedView& to,
              std::size_t bytes_per_element);

/// Memory of these strides holds the box as a file does: dense and row-major.
bool is_dense(const Box& box, const TensorPiece::Strides& strides);

}  // namespace heteroperf
