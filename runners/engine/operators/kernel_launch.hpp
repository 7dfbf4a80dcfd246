#pragma once

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>

#include "runners/engine/kernels/cuda/device_kernels.hpp"
#include "runners/engine/kernels/kernel_table.hpp"
#include "runners/engine/operators/active_device.hpp"
#include "runners/engine/operators/operator.hpp"

namespace heteroperf {

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
  Element element;
  const KernelTable* kernels;  ///< the active device's
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

/// Runs body(RowRange) on disjoint ranges of `count` rows or columns, in parallel when there is
/// enough work: each has `elements`, and a range at least `fewest` of them. On a device once.
template <class Body>
void share_out(const Matrix& matrix, std::int64_t count, std::int64_t elements, std::int64_t fewest,
               const Body& body) {
  if (matrix.on_device) return body(RowRange{0, count, matrix.columns});
  const std::int64_t grain =
      std::max(fewest, elements_per_thread / std::max<std::int64_t>(elements, 1));
  at::parallel_for(0, count, grain, [&](std::int64_t begin, std::int64_t end) {
    body(RowRange{begin, end, matrix.columns});
  });
}

class ColumnPartials;
/// A copy of the sums of ColumnPartials; undefined where there are none.
struct HostPartials {
  at::Tensor values;
};
/// Where a block's sums begin in a tensor {blocks, columns}.
void* block_of(const at::Tensor& values, std::int64_t block);

/// An argument as a kernel takes it: a tensor's memory (null where it is undefined), a block's part
/// of sums, else the value itself.
template <class Parameter, class Argument>
Parameter kernel_argument(const Argument& argument, [[maybe_unused]] std::int64_t block = 0) {
  if constexpr (std::is_same_v<Argument, at::Tensor>) {
    return static_cast<Parameter>(argument.defined() ? argument.data_ptr() : nullptr);
  } else if constexpr (std::is_same_v<Argument, const ColumnPartials*>) {
    return argument != nullptr ? argument->block(block) : nullptr;
  } else if constexpr (std::is_same_v<Argument, HostPartials>) {
    return argument.values.defined() ? block_of(argument.values, block) : nullptr;
  } else {
    return argument;
  }
}

/// Runs the reference on copies in the host's memory, in place of a kernel that the device lacks,
/// and copies back what it writes: on `whole`, or on blocks of so many rows of it.
template <class... Parameters, class... Arguments>
void run_substitute(void (*KernelTable::*kernel)(RowRange, Parameters...), const Matrix& matrix,
                    RowRange whole, std::int64_t rows_per_block, const Arguments&... arguments);

/// Runs a kernel of the matrix's table on its rows, which threads share. Tensors stand for their
/// memory.
template <class... Parameters, class... Arguments>
void run_kernel(void (*KernelTable::*kernel)(RowRange, Parameters...), const Matrix& matrix,
                const Arguments&... arguments) {
  const auto call = matrix.kernels->*kernel;
  if (call == nullptr) {
    return run_substitute(kernel, matrix, {0, matrix.rows, matrix.columns}, 0, arguments...);
  }
  share_out(matrix, matrix.rows, matrix.columns, 1,
            [&](RowRange r) { call(r, kernel_argument<Parameters>(arguments)...); });
}

/// Runs a kernel whose range is of columns, which threads share: each sum over rows is made by one
/// of them.
template <class... Parameters, class... Arguments>
void run_columns(void (*KernelTable::*kernel)(RowRange, Parameters...), const Matrix& matrix,
                 const Arguments&... arguments) {
  const auto call = matrix.kernels->*kernel;
  if (call == nullptr) {
    return run_substitute(kernel, matrix, {0, matrix.columns, matrix.columns}, 0, arguments...);
  }
  share_out(matrix, matrix.columns, matrix.rows, 32,
            [&](RowRange r) { call(r, kernel_argument<Parameters>(arguments)...); });
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
    const RowRange whole{0, matrix.rows, matrix.columns};
    if (call == nullptr) {
      return run_substitute(kernel, matrix, whole, rows_per_block, arguments...);
    }
    if (matrix.on_device) {
      return call(whole, kernel_argument<Parameters>(arguments)...);
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

  void* block(std::int64_t index) const { return block_of(values_, index); }
  const at::Tensor& values() const { return values_; }
  /// target (any kernel type, {columns}) (+)= the sums.
  void combine_into(const at::Tensor& target, Accumulation accumulation) const;
  /// The sums as a tensor of the accumulation type.
  at::Tensor combined() const;

 private:
  std::int64_t blocks_, columns_;
  at::Tensor values_;
};

template <class... Parameters, class... Arguments>
void run_substitute(void (*KernelTable::*kernel)(RowRange, Parameters...), const Matrix& matrix,
                    RowRange whole, std::int64_t rows_per_block, const Arguments&... arguments) {
  Substitute substitute(active_device(), kernel_name(kernel));
  // A kernel only reads where it takes a pointer to constants.
  const auto copied = [&]<class Parameter, class Argument>(std::type_identity<Parameter>,
                                                           const Argument& argument) {
    constexpr bool written =
        std::is_pointer_v<Parameter> && !std::is_const_v<std::remove_pointer_t<Parameter>>;
    if constexpr (std::is_same_v<Argument, at::Tensor>) {
      return substitute.copy(argument, written);
    } else if constexpr (std::is_same_v<Argument, const ColumnPartials*>) {
      return HostPartials{argument == nullptr ? at::Tensor()
                                              : substitute.copy(argument->values(), true)};
    } else {
      return argument;
    }
  };
  const std::tuple copies{copied(std::type_identity<Parameters>(), arguments)...};
  const auto call = reference_kernels(matrix.element).*kernel;
  const std::int64_t step =
      rows_per_block > 0 ? rows_per_block : std::max<std::int64_t>(whole.end, 1);
  for (std::int64_t begin = 0, block = 0; begin < whole.end; begin += step, ++block) {
    const RowRange range{begin, std::min(begin + step, whole.end), whole.columns};
    std::apply(
        [&](const auto&... copy) { call(range, kernel_argument<Parameters>(copy, block)...); },
        copies);
  }
  substitute.copy_back();
}

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

/// Says if an index may be negative, which stands for none.
enum class NoIndex { refused, negative };
/// Throws UserError naming the largest index outside [0, limit). Indices on a device are not read:
/// who put them there has checked them.
void check_indices(const at::Tensor& indices, std::int64_t limit, const char* what,
                   NoIndex none = NoIndex::refused);

/// The targets that a loss over rows {…, features} is the mean of; at least 1, for a micro-batch
/// without targets has neither loss nor gradient.
double counted_targets(const PassContext& context, const at::Tensor& rows);

}  // namespace heteroperf
