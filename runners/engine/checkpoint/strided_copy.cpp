// Copies a box between two memories with different strides, one contiguous run at a time where
// there is one.
#include "runners/engine/checkpoint/strided_copy.hpp"

#include <algorithm>
#include <cstring>

#include "metrics/base/error.hpp"

namespace heteroperf {
namespace {

/// The address of an element.
std::byte* at(const StridedView& view, const Box::Position& position, std::size_t bytes) {
  std::int64_t elements = 0;
  for (std::size_t dim = 0; dim < view.box.dims; ++dim) {
    elements += (position[dim] - view.box.first[dim]) * view.strides[dim];
  }
  return view.data + elements * static_cast<std::int64_t>(bytes);
}

/// One run along the innermost dimension, of elements of `bytes` bytes.
template <std::size_t bytes>
void copy_row(const std::byte* from, std::int64_t from_stride, std::byte* to,
              std::int64_t to_stride, std::int64_t count) {
  constexpr auto width = static_cast<std::int64_t>(bytes);
  if (from_stride == 1 && to_stride == 1) {
    std::memcpy(to, from, static_cast<std::size_t>(count) * bytes);
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    std::memcpy(to + i * to_stride * width, from + i * from_stride * width, bytes);
  }
}

/// The next row's beginning; false after the last.
bool advance(Box::Position& position, const Box& box) {
  for (std::size_t dim = box.dims - 1; dim-- > 0;) {
    if (++position[dim] < box.last[dim]) return true;
    position[dim] = box.first[dim];
  }
  return false;
}

template <std::size_t bytes>
void copy_rows(const Box& box, const StridedView& from, const StridedView& to) {
  if (box.dims == 0) {
    std::memcpy(to.data, from.data, bytes);
    return;
  }
  const std::size_t inner = box.dims - 1;
  Box::Position position = box.first;
  do {
    copy_row<bytes>(at(from, position, bytes), from.strides[inner], at(to, position, bytes),
                    to.strides[inner], box.extent(inner));
  } while (advance(position, box));
}

}  // namespace

Box intersection(const Box& a, const Box& b) {
  HETEROPERF_EXPECT(a.dims == b.dims);
  Box both;
  both.dims = a.dims;
  for (std::size_t dim = 0; dim < a.dims; ++dim) {
    both.first[dim] = std::max(a.first[dim], b.first[dim]);
    both.last[dim] = std::max(both.first[dim], std::min(a.last[dim], b.last[dim]));
  }
  return both;
}

void copy_box(const Box& box, const StridedView& from, const StridedView& to,
              std::size_t bytes_per_element) {
  if (box.count() == 0) return;
  switch (bytes_per_element) {
    case 2:
      return copy_rows<2>(box, from, to);
    case 4:
      return copy_rows<4>(box, from, to);
    case 8:
      return copy_rows<8>(box, from, to);
    default:
      HETEROPERF_EXPECT(!"elements of that size");
  }
}

TensorPiece::Strides dense_strides(const Box& box) {
  TensorPiece::Strides strides{};
  std::int64_t step = 1;
  for (std::size_t dim = box.dims; dim-- > 0; step *= box.extent(dim)) strides[dim] = step;
  return strides;
}

bool is_dense(const Box& box, const TensorPiece::Strides& strides) {
  const TensorPiece::Strides dense = dense_strides(box);
  for (std::size_t dim = 0; dim < box.dims; ++dim) {
    if (box.extent(dim) > 1 && strides[dim] != dense[dim]) return false;
  }
  return true;
}

Box whole_box(const std::vector<std::int64_t>& shape) {
  HETEROPERF_EXPECT(shape.size() <= max_layout_dims);
  Box box;
  box.dims = shape.size();
  std::copy(shape.begin(), shape.end(), box.last.begin());
  return box;
}

}  // namespace heteroperf
