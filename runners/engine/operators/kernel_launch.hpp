#pragma once

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>

#include "runners/engine/kernels/cuda/device_kernels.hpp"
#include "runners/engine/kernels/kernel_table.hpp"
#include "runners/engine/operators/operator.hpp"

namespace heteroperf {

/// Throws UserError for a type no kernel is built for.
const KernelTable& kernels_for(at::ScalarType type);
/// The kernels for the memory that the tensor is in.
const KernelTable& kernels_for(const at::Tensor& tensor);
/// Takes the kernels of the module for CUDA devices, once it is loaded. It is never unloaded.
void use_device_kernels(const DeviceKernels& kernels);
const DeviceKernels& device_kernels();
/// The element type of kernels. Throws UserError for a type none is built for.
Element element_of(at::ScalarType type);

/// float for float and bfloat16, double for double: statistics, losses, partial sums.
at::ScalarType accumulation_type(at::ScalarType type);

/// An uninitialised tensor on the device of `like`, of its type, its accumulation type, or the type
/// named.
at::Tensor empty(at::IntArrayRef sizes, const at::Tensor& like);
at::Tensor empty(at::IntArrayRef sizes, const at::Tensor& like, at::ScalarType type);
at::Tensor empty_accumulators(at::IntArrayRef sizes, const at::Tensor& like);
at::Tensor uninitialised_like(const at::Tensor& tensor);

/// The layout operators work in: images channels last, everything else contiguous. Copies only
/// what has another layout.
at::Tensor canonical(const at::Tensor& tensor);
at::Tensor empty_images(at::IntArrayRef sizes, const at::Tensor& like, at::ScalarType type);
/// Canonical images {B, C, H, W} as {pixels of the batch, channels}.
struct Matrix;
Matrix pixels_of(const at::Tensor& images);

/// Rows and columns of a contiguous tensor; what runs on it is a device's one call or the host's
/// many.
enum class MemoryPlace { host, device };
inline MemoryPlace place_of(const at::Tensor& tensor) {
  return tensor.is_cuda() ? MemoryPlace::device : MemoryPlace::host;
}
struct Matrix {
  std::int64_t rows = 0, columns = 0;
  MemoryPlace place = MemoryPlace::host;
};
/// The windows of a convolution or a pooling over images of these extents.
template <class Attributes>
Window window_over(const Attributes& a, std::int64_t channels, at::IntArrayRef extents) {
  Window w;
  w.channels = channels;
  for (std::size_t axis = 0; axis < 2; ++axis) {
    w.in[axis] = extents[axis];
    w.kernel[axis] = a.kernel[axis];
    w.stride[axis] = a.stride[axis];
    w.padding[axis] = a.padding[axis];
    w.out[axis] = (w.in[axis] + 2 * w.padding[axis] - w.kernel[axis]) / w.stride[axis] + 1;
  }
  return w;
}
/// A tensor seen as {elements / last dimension, last dimension}.
Matrix matrix_of(const at::Tensor& tensor);

/// Null for an undefined tensor.
inline void* data_of(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.data_ptr() : nullptr;
}

/// Sets the number of threads among which the calling thread splits its kernels and LibTorch's
/// operations. Every rank is a thread with a number of its own.
void use_threads(int threads);

/// Elements one thread should have before a second one is worth waking.
constexpr std::int64_t elements_per_thread = 16384;

/// Runs body(RowRange) on disjoint ranges of `rows`, in parallel when there is enough work; on a
/// device once.
template <class Body>
void for_rows(Matrix matrix, const Body& body) {
  if (matrix.place == MemoryPlace::device) return body(RowRange{0, matrix.rows, matrix.columns});
  const std::int64_t width = std::max<std::int64_t>(matrix.columns, 1);
  const std::int64_t grain = std::max<std::int64_t>(1, elements_per_thread / width);
  at::parallel_for(0, matrix.rows, grain, [&](std::int64_t begin, std::int64_t end) {
    body(RowRange{begin, end, matrix.columns});
  });
}

/// Runs body(RowRange) over the elements of dense tensors of one layout, as one long column.
template <class Body>
void for_elements(const at::Tensor& tensor, const Body& body) {
  for_rows({tensor.numel(), 1, place_of(tensor)}, body);
}

/// Rows cut into blocks whose number depends on the shape alone: sums over rows are made per block
/// and joined in block order, so their bits do not depend on the number of threads. A device makes
/// the sums of all blocks in one call.
struct RowBlocks {
  explicit RowBlocks(Matrix matrix);

  /// body(block, RowRange)
  template <class Body>
  void run(const Body& body) const {
    if (matrix.place == MemoryPlace::device) {
      return body(std::int64_t{0}, RowRange{0, matrix.rows, matrix.columns});
    }
    const std::int64_t work = std::max<std::int64_t>(rows_per_block * matrix.columns, 1);
    const std::int64_t grain = std::max<std::int64_t>(1, elements_per_thread / work);
    at::parallel_for(0, count, grain, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t block = first; block < last; ++block) {
        const std::int64_t begin = block * rows_per_block;
        body(block, RowRange{begin, std::min(begin + rows_per_block, matrix.rows), matrix.columns});
      }
    });
  }

  Matrix matrix;
  std::int64_t rows_per_block = 1, count = 0;
};

/// One sum per column and block, of `like`'s accumulation type.
/// The values are not initialised: every block has to be written before they are combined.
class ColumnPartials {
 public:
  ColumnPartials(const RowBlocks& blocks, const at::Tensor& like);

  void* block(std::int64_t index) const;
  void* data() const { return values_.data_ptr(); }
  /// target (any kernel type, {columns}) (+)= the sums.
  void combine_into(const at::Tensor& target, Accumulation accumulation) const;
  /// The sums as a tensor of the accumulation type.
  at::Tensor combined() const;

 private:
  std::int64_t blocks_, columns_;
  at::Tensor values_;
};

inline Store store_for(Accumulation accumulation) {
  return accumulation == Accumulation::add ? Store::add : Store::overwrite;
}

/// A gradient buffer as something kernels of an accumulation type can write: the buffer itself
/// when it has that type and is contiguous, else a temporary that `finish` rounds into it.
class GradientTarget {
 public:
  GradientTarget(const at::Tensor& buffer, at::ScalarType type, Accumulation accumulation);

  const at::Tensor& values() const { return values_; }
  /// The way in which `values()` is to be written.
  Accumulation accumulation() const { return accumulation_; }
  void finish();

 private:
  at::Tensor buffer_, values_;
  Accumulation wanted_, accumulation_;
};

/// gradient (+)= the sums of the columns of contiguous rows.
void sum_columns_into(const at::Tensor& rows, Matrix matrix, const at::Tensor& gradient,
                      Accumulation accumulation);

/// buffer (+)= a · b, straight into it when the types and layout allow.
void multiply_into(const at::Tensor& buffer, const at::Tensor& a, const at::Tensor& b,
                   Accumulation accumulation);

/// Gives input `input` the gradient a · b {rows, columns}, shaped as `shape`; adds in place where
/// the sink offers its tensor.
void put_product(GradientSink& sink, std::size_t input, const at::Tensor& a, const at::Tensor& b,
                 at::IntArrayRef shape);

/// Throws UserError naming the largest index outside [0, limit). Indices on a device are not read:
/// who put them there has checked them.
void check_indices(const at::Tensor& indices, std::int64_t limit, const char* what);

}  // namespace heteroperf
