#pragma once

#include "runners/engine/kernels/kernel_table.hpp"
#include "runners/engine/kernels/vector_math.hpp"

// The table of all kernels by element type. The kernels of the host (variant.cpp) and those of a
// CUDA device (cuda/table.cu) have the same names, so one list serves both: whichever kernels the
// including file has seen before this header are the ones that the table holds. Element-wise
// kernels are those of both, made from the including file's map().
namespace heteroperf {
namespace {

/// The bias is added on the way: the same values are read and written once.
template <class T>
void activation(RowRange r, ActivationKind kind, void* x, const void* bias, void* y) {
  with_activation(kind, [&](auto function) {
    using Function = decltype(function);
    bias != nullptr ? activate_sum<T, Function>(r, x, bias, y)
                    : map<T>(r, ValueOf<Function>(), x, y);
  });
}

/// The column sums are the gradient of a bias.
template <class T>
void activation_backward(RowRange r, ActivationKind kind, const void* dy, const void* kept,
                         void* dx, void* column_sum) {
  with_activation(kind, [&](auto function) {
    using Function = decltype(function);
    column_sum != nullptr ? gradient_and_sums<T, Function>(r, dy, kept, dx, column_sum)
                          : map<T>(r, GradientOf<Function>(), dy, kept, dx);
  });
}

template <class T>
void swiglu(RowRange r, const void* gate, const void* up, void* y) {
  map<T>(r, SwigluOf(), gate, up, y);
}

template <class T>
void multiply(RowRange r, const void* a, const void* b, void* y) {
  map<T>(r, ProductOf(), a, b, y);
}

/// The sum is made in the accumulation type and rounded once.
template <class T>
void add(RowRange r, const void* a, const void* b, bool with_relu, void* y) {
  with_relu ? map<T>(r, ReluOfSum(), a, b, y) : map<T>(r, PlusOf(), a, b, y);
}

template <class T>
constexpr KernelTable table{
    .activation = activation<T>,
    .activation_backward = activation_backward<T>,
    .swiglu = swiglu<T>,
    .swiglu_backward = swiglu_backward<T>,
    .multiply = multiply<T>,
    .add = add<T>,
    .add_bias = add_bias<T>,
    .column_sum = column_sum<T>,
    .combine = combine<T>,
    .layer_norm = layer_norm<T>,
    .layer_norm_backward = layer_norm_backward<T>,
    .rms_norm = rms_norm<T>,
    .rms_norm_backward = rms_norm_backward<T>,
    .moments = moments<T>,
    .combine_moments = combine_moments<T>,
    .batch_norm_affine = batch_norm_affine<T>,
    .scale_shift = scale_shift<T>,
    .batch_norm_sums = batch_norm_sums<T>,
    .batch_norm_coefficients = batch_norm_coefficients<T>,
    .batch_norm_backward = batch_norm_backward<T>,
    .cross_entropy = cross_entropy<T>,
    .cross_entropy_backward = cross_entropy_backward<T>,
    .row_top = row_top<T>,
    .softmax_sums = softmax_sums<T>,
    .embedding = embedding<T>,
    .embedding_backward = embedding_backward<T>,
    .add_rows = add_rows<T>,
    .sum_batch = sum_batch<T>,
    .rotary = rotary<T>,
    .pack = pack<T>,
    .dropout = dropout<T>,
    .im2col = im2col<T>,
    .col2im = col2im<T>,
    .max_pool = max_pool<T>,
    .max_pool_backward = max_pool_backward<T>,
    .mean_rows = mean_rows<T>,
    .mean_rows_backward = mean_rows_backward<T>,
};

const KernelTable& table_of(Element element) {
  switch (element) {
    case Element::float64:
      return table<double>;
    case Element::bfloat16:
      return table<Bf16>;
    default:
      return table<float>;
  }
}

}  // namespace
}  // namespace heteroperf
