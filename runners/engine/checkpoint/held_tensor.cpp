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

/// Cuts a range of a dense memory into boxes: what is left of a row, whole rows, and the beginning
/// of a row, at every level of nesting.
class RangeCut {
 public:
  RangeCut(const std::vector<std::int64_t>& shape, const HeldTensor::MemoryOrder& order)
      : order_(order), strides_(strides_of(shape, order)), box_(whole_box(shape)) {}

  std::vector<Box> run(std::int64_t first, std::int64_t last) {
    if (first < last) cut(0, first, last);
    return std::move(boxes_);
  }

 private:
  /// [first, last): elements below the dimensions that `box_` has fixed already.
  void cut(std::size_t level, std::int64_t first, std::int64_t last) {
    if (level == order_.size()) return boxes_.push_back(box_);
    const std::size_t dim = order_[level];
    const std::int64_t row = strides_[dim];
    const std::int64_t begin = (first + row - 1) / row, end = last / row;
    if (begin > end) return inside_row(level, end, first - end * row, last - end * row);
    if (first < begin * row) inside_row(level, begin - 1, first - (begin - 1) * row, row);
    if (begin < end) rows(dim, begin, end);
    if (end * row < last) inside_row(level, end, 0, last - end * row);
  }
  void inside_row(std::size_t level, std::int64_t row, std::int64_t first, std::int64_t last) {
    const Box outer = box_;
    set(order_[level], row, row + 1);
    cut(level + 1, first, last);
    box_ = outer;
  }
  void rows(std::size_t dim, std::int64_t begin, std::int64_t end) {
    const Box outer = box_;
    set(dim, begin, end);
    boxes_.push_back(box_);
    box_ = outer;
  }
  void set(std::size_t dim, std::int64_t begin, std::int64_t end) {
    box_.first[dim] = begin;
    box_.last[dim] = end;
  }

  const HeldTensor::MemoryOrder& order_;
  TensorPiece::Strides strides_;
  Box box_;
  std::vector<Box> boxes_;
};

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
  for (const Box& box : RangeCut(shape, order).run(first, last)) {
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
    std::memcpy(to, from, count * bytes);
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
