#pragma once

// Activation functions and their slopes at one value, for the kernels of the host and of a device
// alike. Value and slope share their dear part (the normal distribution, the logistic function),
// and a compiler drops the one that a kernel does not use.
#include "runners/engine/kernels/kernel_table.hpp"
#include "runners/engine/kernels/vector_math.hpp"

namespace heteroperf {
namespace {

/// A function's value and slope.
template <class A>
struct ValueAndSlope {
  A value, slope;
};

/// x · Φ(x), or its approximation by a hyperbolic tangent (Hendrycks and Gimpel, arXiv:1606.08415).
template <GeluKind kind, class A>
HETEROPERF_KERNEL ValueAndSlope<A> gelu_at(A x) {
  if constexpr (kind == GeluKind::erf) {
    const auto [cdf, pdf] = normal(x);
    return {x * cdf, cdf + x * pdf};
  } else {
    // 0.5 x (1 + tanh u) = x · logistic(2u), u = √(2/π) (x + 0.044715 x³).
    const A twice = A(1.59576912160573071176) * x;
    const A s = logistic(twice * (A(1) + A(0.044715) * x * x));
    return {x * s, s + s * (A(1) - s) * twice * (A(1) + A(3 * 0.044715) * x * x)};
  }
}

/// x · logistic(x).
template <class A>
HETEROPERF_KERNEL ValueAndSlope<A> silu_at(A x) {
  const A s = logistic(x);
  return {x * s, s * (A(1) + x * (A(1) - s))};
}

}  // namespace
}  // namespace heteroperf
