#pragma once

// The optimizer's updates and the squares of a norm, in one pass over the elements of the flat
// arenas each. An update is bound by memory: per parameter it reads four values and writes three,
// and computes little. The factors of a step are rounded once to the type of the elements.
#include <cmath>

#include "runners/engine/kernels/operands.hpp"

namespace heteroperf {
namespace {

/// AdamW (Loshchilov and Hutter 2019, algorithm 2) with the decay applied to the old weight:
/// w ← w·keep; m ← β1 m + (1 − β1) g; v ← β2 v + (1 − β2) g²; w ← w − step·m / (√v·root + ε).
template <class T>
void adamw(RowRange r, const AdamwScalars& s, void* weight, const void* gradient, void* first,
           void* second) {
  using A = Acc<T>;
  const auto scale = static_cast<A>(s.gradient_scale), keep = static_cast<A>(s.keep);
  const auto beta1 = static_cast<A>(s.beta1), rest1 = static_cast<A>(1 - s.beta1);
  const auto beta2 = static_cast<A>(s.beta2), rest2 = static_cast<A>(1 - s.beta2);
  const auto epsilon = static_cast<A>(s.epsilon), root = static_cast<A>(s.root);
  const auto step = static_cast<A>(s.step);
  const auto f = HETEROPERF_FUNCTION(A & w, A stored, A & m, A & v) {
    const A g = scale * stored;
    m = beta1 * m + rest1 * g;
    v = beta2 * v + rest2 * g * g;
    w = keep * w - step * m / (std::sqrt(v) * root + epsilon);
  };
  map<T>(r, f, Update<T>(weight), Read<T>(gradient), Update<T>(first), Update<T>(second));
}

/// Stochastic gradient descent with momentum, the decay added to the gradient: g ← scale·g +
/// decay·w; b ← momentum·b + g; w ← w − learning_rate·b.
template <class T>
void sgd(RowRange r, const SgdScalars& s, void* weight, const void* gradient, void* velocity) {
  using A = Acc<T>;
  const auto scale = static_cast<A>(s.gradient_scale), decay = static_cast<A>(s.decay);
  const auto momentum = static_cast<A>(s.momentum), rate = static_cast<A>(s.learning_rate);
  const auto f = HETEROPERF_FUNCTION(A & w, A stored, A & b) {
    b = momentum * b + (scale * stored + decay * w);
    w -= rate * b;
  };
  map<T>(r, f, Update<T>(weight), Read<T>(gradient), Update<T>(velocity));
}

/// The squares of one block of elements each; the last block may be shorter.
template <class T>
void square_sums(RowRange blocks, std::int64_t count, const void* x, double* sums) {
  const auto body = HETEROPERF_FUNCTION(const Row& row) {
    const std::int64_t first = row.index * row.columns, rest = count - first;
    const std::int64_t n = rest < row.columns ? rest : row.columns;
    const double sum = row.template lane_sum<double>(n, [&](std::int64_t i) HETEROPERF_INLINED {
      const auto v = static_cast<double>(widen(as<T>(x)[first + i]));
      return v * v;
    });
    if (row.leads()) sums[row.index] = sum;
  };
  rows(blocks, body);
}

}  // namespace
}  // namespace heteroperf
