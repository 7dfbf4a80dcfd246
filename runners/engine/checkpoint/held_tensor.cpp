// A rank holds a tensor as intervals of one dimension, perhaps in another order of memory, and of a
// sharded optimizer state only some elements. This file turns such a stretch of elements into boxes
// of the whole tensor: the rest of a row, whole rows, and the beginning of a row, at every level of
// nesting.
#include "runners/engine/checkpoint/held_tensor.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "metrics/base/error.hpp"

namespace heteroperf {

namespace {

/// A rank without intervals holds the whole dimension.
std::vector<HeldTensor::Interval> intervals_of(const HeldTensor& held) {
  if (!held.intervals.empty() || held.shape.empty()) return held.intervals;
  return {{0, held.shape[held.dim]}};
}

/// The held elements as a tensor of their own.
std::vector<std::int64_t> local_shape(const HeldTensor& held) {
  std::vector<std::int64_t> shape = held.shape;
  if (shape.empty()) return shape;
  HETEROPERF_EXPECT(held.dim < shape.size());
  shape[held.dim] = 0;
  for (const HeldTensor::Interval& interval : intervals_of(held)) {
    HETEROPERF_EXPECT(interval.first >= 0 && interval.count >= 0 &&
                      interval.first + interval.count <= held.shape[held.dim]);
    shape[held.dim] += interval.count;
  }
  return shape;
}

/// The dimensions from the outermost to the innermost; row-major unless the tensor says otherwise.
HeldTensor::MemoryOrder order_of(const HeldTensor& held) {
  if (!held.order.empty()) {
    HETEROPERF_EXPECT(held.order.size() == held.shape.size());
    return held.order;
  }
  HeldTensor::MemoryOrder order(held.shape.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  return order;
}

TensorPiece::Strides strides_of(const std::vector<std::int64_t>& shape,
                                const HeldTensor::MemoryOrder& order) {
  TensorPiece::Strides strides{};
  std::int64_t step = 1;
  for (auto dim = order.rbegin(); dim != order.rend(); ++dim) {
    strides[*dim] = step;
    step *= shape[*dim];
  }
  return strides;
}

/// Cuts elements [first, last) of a dense memory into boxes: what is left of a row, whole rows, and
/// the beginning of a row, at every level of nesting. `box` has fixed the dimensions above `level`.
void cut_range(const HeldTensor::MemoryOrder& order, const TensorPiece::Strides& strides,
               std::size_t level, Box box, std::int64_t first, std::int64_t last,
               std::vector<Box>& boxes) {
  if (first == last) return;
  if (level == order.size()) return boxes.push_back(box);
  const std::size_t dim = order[level];
  const std::int64_t row = strides[dim];
  const std::int64_t begin = (first + row - 1) / row, end = last / row;
  const auto inside_row = [&](std::int64_t number, std::int64_t from, std::int64_t to) {
    box.first[dim] = number;
    box.last[dim] = number + 1;
    cut_range(order, strides, level + 1, box, from, to, boxes);
  };
  if (begin > end) return inside_row(end, first - end * row, last - end * row);
  inside_row(begin - 1, first - (begin - 1) * row, row);
  box.first[dim] = begin;
  box.last[dim] = end;
  if (begin < end) boxes.push_back(box);
  inside_row(end, 0, last - end * row);
}

std::int64_t offset_of(const Box& box, const TensorPiece::Strides& strides) {
  std::int64_t offset = 0;
  for (std::size_t dim = 0; dim < box.dims; ++dim) offset += box.first[dim] * strides[dim];
  return offset;
}

}  // namespace

std::int64_t held_count(const HeldTensor& held) { return whole_box(local_shape(held)).count(); }

std::vector<TensorPiece> pieces_of(const HeldTensor& held) {
  return pieces_of_range(held, 0, held_count(held));
}

std::vector<TensorPiece> pieces_of_range(const HeldTensor& held, std::int64_t first,
                                         std::int64_t last) {
  const std::vector<std::int64_t> shape = local_shape(held);
  const HeldTensor::MemoryOrder order = order_of(held);
  HETEROPERF_EXPECT(first >= 0 && first <= last && last <= held_count(held));
  const TensorPiece::Strides strides = strides_of(shape, order);
  std::vector<TensorPiece> pieces;
  // A box of local elements is `shift` rows further on in the whole tensor.
  const auto add = [&](const Box& local, std::int64_t shift) {
    const std::int64_t offset = offset_of(local, strides) - first;
    TensorPiece& piece = pieces.emplace_back(
        TensorPiece{held.name, held.type, held.shape, local, strides,
                    static_cast<std::byte*>(held.data) +
                        offset * static_cast<std::int64_t>(element_bytes(held.type))});
    piece.box.first[held.dim] += shift;
    piece.box.last[held.dim] += shift;
  };
  std::vector<Box> boxes;
  cut_range(order, strides, 0, whole_box(shape), first, last, boxes);
  for (const Box& box : boxes) {
    if (box.dims == 0) add(box, 0);
    std::int64_t begin = 0;  // of the interval, in local rows
    for (const HeldTensor::Interval& interval : intervals_of(held)) {
      Box part = box;
      part.first[held.dim] = std::max(box.first[held.dim], begin);
      part.last[held.dim] = std::min(box.last[held.dim], begin + interval.count);
      if (part.extent(held.dim) > 0) add(part, interval.first - begin);
      begin += interval.count;
    }
  }
  return pieces;
}

// Copies a box between two memories with different strides, one contiguous run at a time where
// there is one.

namespace {

/// The address of the box's first element.
std::byte* begin_of(const Box& box, const StridedView& view, std::size_t bytes) {
  const std::int64_t elements = offset_of(box, view.strides) - offset_of(view.box, view.strides);
  return view.data + elements * static_cast<std::int64_t>(bytes);
}

/// Copies the elements of the dimensions from `dim` on, of `bytes` bytes each. Both addresses are
/// those of the first element.
template <std::size_t bytes>
void copy_rows(const Box& box, std::size_t dim, const std::byte* from,
               const TensorPiece::Strides& from_strides, std::byte* to,
               const TensorPiece::Strides& to_strides) {
  constexpr auto width = static_cast<std::int64_t>(bytes);
  const std::int64_t from_step = from_strides[dim] * width, to_step = to_strides[dim] * width;
  const std::int64_t count = box.extent(dim);
  const bool innermost = dim + 1 == box.dims;
  if (innermost && from_step == width && to_step == width) {
    std::memcpy(to, from, count * bytes);
    return;
  }
  for (std::int64_t i = 0; i < count; ++i, from += from_step, to += to_step) {
    if (innermost) {
      std::memcpy(to, from, bytes);
    } else {
      copy_rows<bytes>(box, dim + 1, from, from_strides, to, to_strides);
    }
  }
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
  const std::byte* source = begin_of(box, from, bytes_per_element);
  std::byte* target = begin_of(box, to, bytes_per_element);
  if (box.dims == 0) {
    std::memcpy(target, source, bytes_per_element);
    return;
  }
  const auto copy = [&]<std::size_t bytes>() {
    copy_rows<bytes>(box, 0, source, from.strides, target, to.strides);
  };
  switch (bytes_per_element) {
    case 2:
      return copy.operator()<2>();
    case 4:
      return copy.operator()<4>();
    case 8:
      return copy.operator()<8>();
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
