#pragma once

// The optimizer's updates and the squared norm on a device, one pass over the elements each. The
// formulas are those of optimizer_kernels.hpp.
#include "runners/engine/kernels/cuda/device_kernels.hpp"
#include "runners/engine/kernels/cuda/reductions.cuh"
#include "runners/engine/kernels/vector_math.hpp"

namespace heteroperf {
namespace {

/// The factors of a step, rounded once to the type of the elements.
template <class T>
struct AdamwFactors {
  T scale, keep, beta1, rest1, beta2, rest2, epsilon, step, root;
};
/// A thread updates an element: reads four values and writes three.
template <class T>
__global__ void adamw_elements(std::int64_t count, AdamwFactors<T> k, T* weight, const T* gradient,
                               T* first, T* second) {
  HETEROPERF_FOR_ITEMS(i, count) {
    const T g = k.scale * gradient[i];
    const T m = k.beta1 * first[i] + k.rest1 * g;
    const T v = k.beta2 * second[i] + k.rest2 * g * g;
    first[i] = m;
    second[i] = v;
    weight[i] = k.keep * weight[i] - k.step * m / (std::sqrt(v) * k.root + k.epsilon);
  }
}
/// Scalars are rounded to the type of the elements on the host, as the host's kernels do.
template <class T>
void adamw_of(void* weight, const void* gradient, void* first, void* second, std::int64_t count,
              const AdamwScalars& s) {
  const AdamwFactors<T> k{
      static_cast<T>(s.gradient_scale), static_cast<T>(s.keep),  static_cast<T>(s.beta1),
      static_cast<T>(1 - s.beta1),      static_cast<T>(s.beta2), static_cast<T>(1 - s.beta2),
      static_cast<T>(s.epsilon),        static_cast<T>(s.step),  static_cast<T>(s.root)};
  launch_items(adamw_elements<T>, count, k, weight, gradient, first, second);
}
inline void adamw(Element element, void* weight, const void* gradient, void* first, void* second,
                  std::int64_t count, const AdamwScalars& s) {
  element == Element::float64 ? adamw_of<double>(weight, gradient, first, second, count, s)
                              : adamw_of<float>(weight, gradient, first, second, count, s);
}

/// The same of stochastic gradient descent.
template <class T>
struct SgdFactors {
  T scale, decay, momentum, rate;
};
template <class T>
__global__ void sgd_elements(std::int64_t count, SgdFactors<T> k, T* weight, const T* gradient,
                             T* velocity) {
  HETEROPERF_FOR_ITEMS(i, count) {
    const T g = k.scale * gradient[i] + k.decay * weight[i];
    const T b = k.momentum * velocity[i] + g;
    velocity[i] = b;
    weight[i] -= k.rate * b;
  }
}
template <class T>
void sgd_of(void* weight, const void* gradient, void* velocity, std::int64_t count,
            const SgdScalars& s) {
  const SgdFactors<T> k{static_cast<T>(s.gradient_scale), static_cast<T>(s.decay),
                        static_cast<T>(s.momentum), static_cast<T>(s.learning_rate)};
  launch_items(sgd_elements<T>, count, k, weight, gradient, velocity);
}
inline void sgd(Element element, void* weight, const void* gradient, void* velocity,
                std::int64_t count, const SgdScalars& s) {
  element == Element::float64 ? sgd_of<double>(weight, gradient, velocity, count, s)
                              : sgd_of<float>(weight, gradient, velocity, count, s);
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
/// The grid is bounded by the room for partial sums. Its size depends on `count` alone, and with it
/// the order of the sum.
template <class T>
void add_square_sum_of(const void* values, std::int64_t count, double* partials, double* sum) {
  if (count == 0) return;
  LaunchShape shape = over_items(count);
  shape.grid_x =
      shape.grid_x < square_sum_blocks ? shape.grid_x : static_cast<unsigned>(square_sum_blocks);
  launch(square_sums<T>, shape, count, values, partials);
  launch(add_partials, LaunchShape{1, 1, most_threads, 1}, shape.grid_x, partials, sum);
}
/// Values are float32 or float64; the sum is float64 in both cases.
inline void add_square_sum(Element element, const void* values, std::int64_t count,
                           double* partials, double* sum) {
  element == Element::float64 ? add_square_sum_of<double>(values, count, partials, sum)
                              : add_square_sum_of<float>(values, count, partials, sum);
}

}  // namespace
}  // namespace heteroperf
