#pragma once

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

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

/// Rows and columns of a contiguous tensor, with the kernels for its type and memory. What runs on
/// it is a device's one call or the host's many.
struct Matrix {
  /// Memory and type are those of `like`.
  Matrix(std::int64_t rows, std::int64_t columns, const at::Tensor& like);

  std::int64_t rows, columns;
  bool on_device;
  const KernelTable* kernels;
};
/// A tensor seen as {elements / last dimension, last dimension}.
Matrix matrix_of(const at::Tensor& tensor);
/// The elements of a dense tensor as one long column.
Matrix elements_of(const at::Tensor& tensor);
/// Canonical images {B, C, H, W} as {pixels of the batch, channels}.
Matrix pixels_of(const at::Tensor& images);

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

/// Sets the number of threads among which the calling thread splits its kernels and LibTorch's
/// operations. Every rank is a thread with a number of its own.
void use_threads(int threads);

/// Elements one thread should have before a second one is worth waking.
constexpr std::int64_t elements_per_thread = 16384;

/// Runs body(RowRange) on disjoint ranges of `rows`, in parallel when there is enough work; on a
/// device once.
template <class Body>
void for_rows(Matrix matrix, const Body& body) {
  if (matrix.on_device) return body(RowRange{0, matrix.rows, matrix.columns});
  const std::int64_t width = std::max<std::int64_t>(matrix.columns, 1);
  const std::int64_t grain = std::max<std::int64_t>(1, elements_per_thread / width);
  at::parallel_for(0, matrix.rows, grain, [&](std::int64_t begin, std::int64_t end) {
    body(RowRange{begin, end, matrix.columns});
  });
}

class ColumnPartials;

/// An argument as a kernel takes it: a tensor's memory (null where it is undefined), a block's part
/// of sums, else the value itself.
template <class Parameter, class Argument>
Parameter kernel_argument(const Argument& argument, [[maybe_unused]] std::int64_t block = 0) {
  if constexpr (std::is_same_v<Argument, at::Tensor>) {
    return static_cast<Parameter>(argument.defined() ? argument.data_ptr() : nullptr);
  } else if constexpr (std::is_same_v<Argument, const ColumnPartials*>) {
    return argument != nullptr ? argument->block(block) : nullptr;
  } else {
    return argument;
  }
}

/// Runs a kernel of the matrix's table on its rows as for_rows() does. Tensors stand for their
/// memory.
template <class... Parameters, class... Arguments>
void run_kernel(void (*KernelTable::*kernel)(RowRange, Parameters...), const Matrix& matrix,
                const Arguments&... arguments) {
  const auto call = matrix.kernels->*kernel;
  for_rows(matrix, [&](RowRange r) { call(r, kernel_argument<Parameters>(arguments)...); });
}

/// Rows cut into blocks whose number depends on the shape alone: sums over rows are made per block
/// and joined in block order, so their bits do not depend on the number of threads. A device makes
/// the sums of all blocks in one call.
struct RowBlocks {
  explicit RowBlocks(Matrix matrix);

  /// Runs a kernel of the matrix's table on every block. ColumnPartials, by pointer, stand for the
  /// block's part of them.
  template <class... Parameters, class... Arguments>
  void run(void (*KernelTable::*kernel)(RowRange, Parameters...),
           const Arguments&... arguments) const {
    const auto call = matrix.kernels->*kernel;
    if (matrix.on_device) {
      return call({0, matrix.rows, matrix.columns}, kernel_argument<Parameters>(arguments)...);
    }
    const std::int64_t work = std::max<std::int64_t>(rows_per_block * matrix.columns, 1);
    const std::int64_t grain = std::max<std::int64_t>(1, elements_per_thread / work);
    at::parallel_for(0, count, grain, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t block = first; block < last; ++block) {
        const std::int64_t begin = block * rows_per_block;
        call({begin, std::min(begin + rows_per_block, matrix.rows), matrix.columns},
             kernel_argument<Parameters>(arguments, block)...);
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
  const at::Tensor& values() const { return values_; }
  /// target (any kernel type, {columns}) (+)= the sums.
  void combine_into(const at::Tensor& target, Accumulation accumulation) const;
  /// The sums as a tensor of the accumulation type.
  at::Tensor combined() const;

 private:
  std::int64_t blocks_, columns_;
  at::Tensor values_;
};

/// The kernels' name of a form of gelu.
ActivationKind kind_of(GeluForm form);

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

/// buffer (+)= gradient.
void accumulate(const at::Tensor& buffer, const at::Tensor& gradient, Accumulation accumulation);

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
