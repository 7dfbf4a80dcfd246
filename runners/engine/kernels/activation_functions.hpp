#pragma once

#include "runners/engine/kernels/kernel_table.hpp"
#include "runners/engine/kernels/vector_math.hpp"

namespace heteroperf {
namespace {

/// A function's value and slope.
template <class A>
struct ValueAndSlope {
  A value, slope;
};

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

template <class A>
HETEROPERF_KERNEL ValueAndSlope<A> silu_at(A x) {
  const A s = logistic(x);
  return {x * s, s * (A(1) + x * (A(1) - s))};
}

}  // namespace
}  // namespace heteroperf
