#pragma once

#include <cmath>
#include <cstdint>

#include "runners/engine/kernels/scalar_types.hpp"

namespace heteroperf {

/// One pass over [begin, end) of the flat arenas. `T` is float or double; scalars are rounded to T.

/// AdamW (Loshchilov and Hutter 2019, algorithm 2) with the decay applied to the old weight:
/// w ← w·keep; m ← β1 m + (1 − β1) g; v ← β2 v + (1 − β2) g²; w ← w − step·m / (√v·root + ε).
struct AdamwScalars {
  double gradient_scale = 1;  ///< clipping: g = scale · stored gradient
  double keep = 1;            ///< 1 − learning rate · decay
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  double step = 0;  ///< learning rate / (1 − β1^t)
  double root = 1;  ///< 1 / √(1 − β2^t)
};
/// The factors of a step, rounded once to the type of the elements, for the host and a device.
template <class T>
struct AdamwFactors {
  explicit AdamwFactors(const AdamwScalars& s)
      : scale(static_cast<T>(s.gradient_scale)),
        keep(static_cast<T>(s.keep)),
        beta1(static_cast<T>(s.beta1)),
        rest1(static_cast<T>(1 - s.beta1)),
        beta2(static_cast<T>(s.beta2)),
        rest2(static_cast<T>(1 - s.beta2)),
        epsilon(static_cast<T>(s.epsilon)),
        step(static_cast<T>(s.step)),
        root(static_cast<T>(s.root)) {}
  /// Element i.
  HETEROPERF_KERNEL void update(std::int64_t i, T* __restrict weight, const T* __restrict gradient,
                                T* __restrict first, T* __restrict second) const {
    const T g = scale * gradient[i];
    const T m = beta1 * first[i] + rest1 * g;
    const T v = beta2 * second[i] + rest2 * g * g;
    first[i] = m;
    second[i] = v;
    weight[i] = keep * weight[i] - step * m / (std::sqrt(v) * root + epsilon);
  }
  T scale, keep, beta1, rest1, beta2, rest2, epsilon, step, root;
};
template <class T>
void adamw_update(T* weight, const T* gradient, T* first, T* second, std::int64_t begin,
                  std::int64_t end, const AdamwScalars& scalars);

/// Stochastic gradient descent with momentum, the decay added to the gradient: g ← scale·g +
/// decay·w; b ← momentum·b + g; w ← w − learning_rate·b.
struct SgdScalars {
  double gradient_scale = 1, decay = 0, momentum = 0, learning_rate = 0;
};
template <class T>
struct SgdFactors {
  explicit SgdFactors(const SgdScalars& s)
      : scale(static_cast<T>(s.gradient_scale)),
        decay(static_cast<T>(s.decay)),
        momentum(static_cast<T>(s.momentum)),
        rate(static_cast<T>(s.learning_rate)) {}
  HETEROPERF_KERNEL void update(std::int64_t i, T* __restrict weight, const T* __restrict gradient,
                                T* __restrict velocity) const {
    const T g = scale * gradient[i] + decay * weight[i];
    const T b = momentum * velocity[i] + g;
    velocity[i] = b;
    weight[i] -= rate * b;
  }
  T scale, decay, momentum, rate;
};
template <class T>
void sgd_update(T* weight, const T* gradient, T* velocity, std::int64_t begin, std::int64_t end,
                const SgdScalars& scalars);

/// Σ x² in float64, in blocks of fixed size: the same bits whatever the number of threads.
template <class T>
double sum_of_squares(const T* values, std::int64_t count);

}  // namespace heteroperf
