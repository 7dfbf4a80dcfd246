#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "runners/engine/checkpoint/checkpoint.hpp"

namespace heteroperf {

/// The part of a tensor that one rank holds in dense memory: along one dimension some intervals,
/// one after another; along the others everything.
struct HeldTensor {
  struct Interval {
    std::int64_t first = 0, count = 0;
  };
  /// Dimensions from the outermost in memory to the innermost; empty: row-major. A channels-last
  /// convolution weight {out, in, kh, kw} is {0, 2, 3, 1}.
  using MemoryOrder = std::vector<std::size_t>;

  std::string name;
  StoredType type = StoredType::f32;
  std::vector<std::int64_t> shape;  ///< the whole tensor's
  std::size_t dim = 0;
  std::vector<Interval> intervals;  ///< empty: all of `dim`
  MemoryOrder order;
  void* data = nullptr;  ///< the first held element
};

/// Elements that are held.
std::int64_t held_count(const HeldTensor& held);

/// All that is held, as pieces for a writer or a reader.
std::vector<TensorPiece> pieces_of(const HeldTensor& held);

/// Held elements [first, last) in the order of memory (a share of sharded optimizer states). `data`
/// is where element `first` is, not the first held one.
std::vector<TensorPiece> pieces_of_range(const HeldTensor& held, std::int64_t first,
                                         std::int64_t last);

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
