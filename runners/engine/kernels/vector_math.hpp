#pragma once

// Exponentials and their relatives for kernels.
//
// A call to the C library ends vectorisation, so the float forms are written as polynomials without
// branches, with errors of about the last bit or two of a float. Both sides of a choice are
// computed and one is selected.
#include <cmath>
#include <cstdint>

#include "runners/engine/kernels/kernel_table.hpp"
#include "runners/engine/kernels/scalar_types.hpp"

namespace heteroperf {

namespace {

// Branch-free float forms that a compiler turns into vector code; doubles take the C library's
// (they serve comparisons with a reference, not speed).

// exp: Cody-Waite reduction by ln 2 in two parts, then exp(r) on |r| ≤ ln(2)/2 by its Taylor
// polynomial of degree 7 (truncation 3e-9). NaN passes. Arguments are held within ±80: compilers
// evaluate the limits' results for every lane, and one near 1e-38 makes denormal products that cost
// each vector a microcode assist.
HETEROPERF_KERNEL float exponential(float x) {
  constexpr float round_to_integer = 12582912.0f;  // 1.5 · 2^23
  x = x < -80.0f ? -80.0f : x;
  x = x > 80.0f ? 80.0f : x;
  const float shifted = x * 1.44269504f + round_to_integer;
  const float n = shifted - round_to_integer;
  float r = x - n * 0.693359375f;
  r = r + n * 2.12194440e-4f;
  float p = 1.98412698e-4f;
  p = p * r + 1.38888889e-3f;
  p = p * r + 8.33333333e-3f;
  p = p * r + 4.16666667e-2f;
  p = p * r + 1.66666667e-1f;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  const auto exponent = (__builtin_bit_cast(std::uint32_t, shifted) - 0x4b400000U + 127U) << 23;
  return p * __builtin_bit_cast(float, exponent);
}
HETEROPERF_KERNEL double exponential(double x) { return std::exp(x); }

template <class A>
HETEROPERF_KERNEL A magnitude(A x) {
  return x < A(0) ? -x : x;
}

/// 1 / x of a positive x that is neither denormal nor infinite; NaN passes. Subtracting the bits
/// from a constant divides roughly (to 12 %), and each of Newton's steps squares that error. A
/// division of a whole vector takes several times as long as these.
HETEROPERF_KERNEL float reciprocal(float x) {
  float y = __builtin_bit_cast(float, 0x7ef311c7U - __builtin_bit_cast(std::uint32_t, x));
  for (int step = 0; step < 3; ++step) y = y + y * (1.0f - x * y);
  return y;
}
HETEROPERF_KERNEL double reciprocal(double x) { return 1.0 / x; }

/// Near 0 a polynomial, because 1 − 2 / (exp(2x) + 1) would cancel there; else the exponential.
HETEROPERF_KERNEL float hyperbolic_tangent(float x) {
  const float a = magnitude(x), s = x * x;
  const float far = 1.0f - 2.0f * reciprocal(exponential(2.0f * a) + 1.0f);
  // Odd polynomial of tanh on |x| < 0.625 (Cephes, S. Moshier, tanhf).
  float p = -5.70498872745e-3f;
  p = p * s + 2.06390887954e-2f;
  p = p * s - 5.37397155531e-2f;
  p = p * s + 1.33314422036e-1f;
  p = p * s - 3.33332819422e-1f;
  const float near = x + x * s * p;
  return a < 0.625f ? near : (x < 0.0f ? -far : far);
}
HETEROPERF_KERNEL double hyperbolic_tangent(double x) { return std::tanh(x); }

/// Φ(x) and φ(x) of the standard normal distribution.
template <class A>
struct Normal {
  A cdf, pdf;
};

// erfc(z) = exp(−z²) · t · Q(t), t = 1 / (1 + 0.35 z), z ≥ 0; Q is a least-maximum fit of degree 9
// on z ≤ 12 with relative error 9e-9. So Φ keeps its relative accuracy in the lower tail.
HETEROPERF_KERNEL Normal<float> normal(float x) {
  const float e = exponential(-0.5f * x * x);
  const float z = magnitude(x) < 100.0f ? magnitude(x) : 100.0f;  // e has long come to its end
  const float t = reciprocal(1.0f + 0.247487373f * z);            // 0.35 / √2
  float q = 0.04060910317f;
  q = q * t - 0.171174012f;
  q = q * t + 0.2109216039f;
  q = q * t - 0.06798186294f;
  q = q * t + 0.1214344155f;
  q = q * t + 0.127019061f;
  q = q * t + 0.1579745922f;
  q = q * t + 0.1863971125f;
  q = q * t + 0.1973262673f;
  q = q * t + 0.1974737283f;
  const float lower = 0.5f * e * t * q;
  return {x > 0.0f ? 1.0f - lower : lower, 0.398942280f * e};
}
HETEROPERF_KERNEL Normal<double> normal(double x) {
  return {0.5 * std::erfc(-x * 0.70710678118654752440),
          0.39894228040143267794 * std::exp(-0.5 * x * x)};
}

/// 1 / (1 + exp(−x)); the held argument of exponential() keeps it finite.
template <class A>
HETEROPERF_KERNEL A logistic(A x) {
  return reciprocal(A(1) + exponential(-x));
}

// Functions of one or two values, for the kernels of the host and of a device alike. Of a function
// and its slope the dear part (the normal distribution, the logistic function) is shared, and a
// compiler drops the one that a kernel does not use.

/// A function's value and slope.
template <class A>
struct ValueAndSlope {
  A value, slope;
};

/// An activation that keeps its input: `Function::at` gives value and slope there.
template <class Function>
struct FromInput {
  template <class A>
  HETEROPERF_KERNEL static A value(A x) {
    return Function::at(x).value;
  }
  template <class A>
  HETEROPERF_KERNEL static A gradient(A g, A x) {
    return g * Function::at(x).slope;
  }
};

/// x · Φ(x).
struct GeluErf : FromInput<GeluErf> {
  template <class A>
  HETEROPERF_KERNEL static ValueAndSlope<A> at(A x) {
    const auto [cdf, pdf] = normal(x);
    return {x * cdf, cdf + x * pdf};
  }
};
/// Its approximation by a hyperbolic tangent (Hendrycks and Gimpel, arXiv:1606.08415):
/// 0.5 x (1 + tanh u) = x · logistic(2u), u = √(2/π) (x + 0.044715 x³).
struct GeluTanh : FromInput<GeluTanh> {
  template <class A>
  HETEROPERF_KERNEL static ValueAndSlope<A> at(A x) {
    const A twice = A(1.59576912160573071176) * x;
    const A s = logistic(twice * (A(1) + A(0.044715) * x * x));
    return {x * s, s + s * (A(1) - s) * twice * (A(1) + A(3 * 0.044715) * x * x)};
  }
};
/// x · logistic(x).
struct SiluFunction : FromInput<SiluFunction> {
  template <class A>
  HETEROPERF_KERNEL static ValueAndSlope<A> at(A x) {
    const A s = logistic(x);
    return {x * s, s * (A(1) + x * (A(1) - s))};
  }
};
/// It keeps its output. `!(x <= 0)`-style tests keep a NaN visible.
struct ReluFunction {
  template <class A>
  HETEROPERF_KERNEL static A value(A x) {
    return x <= A(0) ? A(0) : x;
  }
  template <class A>
  HETEROPERF_KERNEL static A gradient(A g, A y) {
    return y <= A(0) ? A(0) : g;
  }
};
/// It keeps its output.
struct TanhFunction {
  template <class A>
  HETEROPERF_KERNEL static A value(A x) {
    return hyperbolic_tangent(x);
  }
  template <class A>
  HETEROPERF_KERNEL static A gradient(A g, A y) {
    return g * (A(1) - y * y);
  }
};

}  // namespace
}  // namespace heteroperf
