#pragma once

// The optimizer's updates and the squared norm on a device, one pass over the elements each. The
// formulas are those of optimizer_kernels.hpp.
#include "runners/engine/kernels/cuda/device_kernels.hpp"
#include "runners/engine/kernels/cuda/reductions.cuh"

namespace heteroperf {
namespace {

/// Calls body with a zero of the type of an arena's elements.
template <class Body>
void with_scalar(Element element, const Body& body) {
  element == Element::float64 ? body(0.0) : body(0.0f);
}

/// A thread updates an element: reads four values and writes three.
template <class T>
__global__ void adamw_elements(std::int64_t count, AdamwFactors<T> k, T* weight, const T* gradient,
                               T* first, T* second) {
  HETEROPERF_FOR_ITEMS(i, count) k.update(i, weight, gradient, first, second);
}
/// Scalars are rounded to the type of the elements on the host, as the host's kernels do.
inline void adamw(Element element, void* weight, const void* gradient, void* first, void* second,
                  std::int64_t count, const AdamwScalars& s) {
  with_scalar(element, [&](auto zero) {
    using T = decltype(zero);
    launch_items(adamw_elements<T>, count, AdamwFactors<T>(s), weight, gradient, first, second);
  });
}

template <class T>
__global__ void sgd_elements(std::int64_t count, SgdFactors<T> k, T* weight, const T* gradient,
                             T* velocity) {
  HETEROPERF_FOR_ITEMS(i, count) k.update(i, weight, gradient, velocity);
}
inline void sgd(Element element, void* weight, const void* gradient, void* velocity,
                std::int64_t count, const SgdScalars& s) {
  with_scalar(element, [&](auto zero) {
    using T = decltype(zero);
    launch_items(sgd_elements<T>, count, SgdFactors<T>(s), weight, gradient, velocity);
  });
}

/// Every block adds up its elements; one block then joins the partial sums in their order.
template <class T>
__global__ void square_sums(std::int64_t count, const T* values, double* partials) {
  double total = 0;
  HETEROPERF_FOR_ITEMS(i, count) {
    const auto x = static_cast<double>(values[i]);
    total += x * x;
  }
  total = sum_block(total);
  if (threadIdx.x == 0) partials[blockIdx.x] = total;
}
/// Adds to what is there: a norm is summed over several arenas.
__global__ void add_partials(std::int64_t count, const double* partials, double* sum) {
  double total = 0;
  HETEROPERF_FOR_COLUMNS(i, count) total += partials[i];
  total = sum_block(total);
  if (threadIdx.x == 0) *sum += total;
}
/// Values are float32 or float64; the sum is float64 in both cases. The grid is bounded by the room
/// for partial sums. Its size depends on `count` alone, and with it the order of the sum.
inline void add_square_sum(Element element, const void* values, std::int64_t count,
                           double* partials, double* sum) {
  if (count == 0) return;
  LaunchShape shape = over_items(count);
  shape.grid_x =
      shape.grid_x < square_sum_blocks ? shape.grid_x : static_cast<unsigned>(square_sum_blocks);
  with_scalar(element, [&](auto zero) {
    launch(square_sums<decltype(zero)>, shape, count, values, partials);
  });
  launch(add_partials, LaunchShape{1, 1, most_threads, 1}, shape.grid_x, partials, sum);
}

}  // namespace
}  // namespace heteroperf
