#pragma once

#include <cstdint>

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
template <class T>
void adamw_update(T* weight, const T* gradient, T* first, T* second, std::int64_t begin,
                  std::int64_t end, const AdamwScalars& scalars);

/// Stochastic gradient descent with momentum, the decay added to the gradient: g ← scale·g +
/// decay·w; b ← momentum·b + g; w ← w − learning_rate·b.
struct SgdScalars {
  double gradient_scale = 1, decay = 0, momentum = 0, learning_rate = 0;
};
template <class T>
void sgd_update(T* weight, const T* gradient, T* velocity, std::int64_t begin, std::int64_t end,
                const SgdScalars& scalars);

/// Σ x² in float64, in blocks of fixed size: the same bits whatever the number of threads.
template <class T>
double sum_of_squares(const T* values, std::int64_t count);

}  // namespace heteroperf
