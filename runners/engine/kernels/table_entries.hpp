#pragma once

#include "runners/engine/kernels/kernel_table.hpp"
#include "runners/engine/kernels/scalar_types.hpp"

// The table of all kernels by element type. The kernels of the host (variant.cpp) and those of a
// CUDA device (cuda/table.cu) have the same names, so one list serves both: whichever kernels the
// including file has seen before this header are the ones that the table holds.
namespace heteroperf {
namespace {

template <class T>
constexpr KernelTable table{
    .bias_gelu = bias_gelu<T>,
    .gelu_backward = gelu_backward<T>,
    .relu = relu<T>,
    .relu_backward = relu_backward<T>,
    .silu = silu<T>,
    .silu_backward = silu_backward<T>,
    .tanh = tanh_forward<T>,
    .tanh_backward = tanh_backward<T>,
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
