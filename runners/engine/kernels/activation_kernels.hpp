#pragma once

// Element-wise kernels of the host, and the passes of a linear layer around its product. Loops are
// written so that the compiler uses vector registers: branch-free bodies over plain arrays.
#include "runners/engine/kernels/kernel_table.hpp"
#include "runners/engine/kernels/vector_math.hpp"

namespace heteroperf {
namespace {

/// y = f(a), element by element. y may be a.
template <class T, class F>
HETEROPERF_KERNEL void map(RowRange r, F f, const void* a, void* y) {
  const T* __restrict pa = as<T>(a);
  T* __restrict py = as<T>(y);
#pragma omp simd
  for (std::int64_t i = r.begin * r.columns; i < r.end * r.columns; ++i) {
    py[i] = narrow<T>(f(widen(pa[i])));
  }
}

/// y = f(a, b), element by element. y may be a or b.
template <class T, class F>
HETEROPERF_KERNEL void map(RowRange r, F f, const void* a, const void* b, void* y) {
  const T* __restrict pa = as<T>(a);
  const T* __restrict pb = as<T>(b);
  T* __restrict py = as<T>(y);
#pragma omp simd
  for (std::int64_t i = r.begin * r.columns; i < r.end * r.columns; ++i) {
    py[i] = narrow<T>(f(widen(pa[i]), widen(pb[i])));
  }
}

/// x += bias, stored back because the backward pass needs it; y = f(x).
template <class T, class Function>
HETEROPERF_KERNEL void activate_sum(RowRange r, void* x, const void* bias, void* y) {
  const T* __restrict pb = as<T>(bias);
  for (std::int64_t row = r.begin; row < r.end; ++row) {
    T* __restrict px = as<T>(x) + row * r.columns;
    T* __restrict py = as<T>(y) + row * r.columns;
#pragma omp simd
    for (std::int64_t c = 0; c < r.columns; ++c) {
      px[c] = narrow<T>(widen(px[c]) + widen(pb[c]));
      py[c] = narrow<T>(Function::value(widen(px[c])));
    }
  }
}

/// The gradient behind a function, and its sums over the rows of the range.
template <class T, class Function>
HETEROPERF_KERNEL void gradient_and_sums(RowRange r, const void* dy, const void* kept, void* dx,
                                         void* sums) {
  using A = Acc<T>;
  A* __restrict sum = as<A>(sums);
  for (std::int64_t c = 0; c < r.columns; ++c) sum[c] = A(0);
  for (std::int64_t row = r.begin; row < r.end; ++row) {
    const T* __restrict pdy = as<T>(dy) + row * r.columns;
    const T* __restrict pk = as<T>(kept) + row * r.columns;
    T* __restrict pdx = as<T>(dx) + row * r.columns;
#pragma omp simd
    for (std::int64_t c = 0; c < r.columns; ++c) {
      const A g = Function::gradient(widen(pdy[c]), widen(pk[c]));
      pdx[c] = narrow<T>(g);
      sum[c] += g;
    }
  }
}

/// Both gradients of silu(gate) · up share the logistic function of the gate.
template <class T>
void swiglu_backward(RowRange r, const void* dy, const void* gate, const void* up, void* dgate,
                     void* dup) {
  using A = Acc<T>;
  const T* __restrict pdy = as<T>(dy);
  const T* __restrict pg = as<T>(gate);
  const T* __restrict pu = as<T>(up);
  T* __restrict pdg = as<T>(dgate);
  T* __restrict pdu = as<T>(dup);
#pragma omp simd
  for (std::int64_t i = r.begin * r.columns; i < r.end * r.columns; ++i) {
    const auto [value, slope] = SiluFunction::at(widen(pg[i]));
    const A g = widen(pdy[i]);
    pdg[i] = narrow<T>(g * widen(pu[i]) * slope);
    pdu[i] = narrow<T>(g * value);
  }
}

/// x += bias + residual; each of the two may be missing.
template <class T, bool with_bias, bool with_residual>
HETEROPERF_KERNEL void add_bias_rows(RowRange r, void* x, const void* bias, const void* residual) {
  const T* __restrict pb = as<T>(bias);
  for (std::int64_t row = r.begin; row < r.end; ++row) {
    T* __restrict px = as<T>(x) + row * r.columns;
    const T* __restrict pr = with_residual ? as<T>(residual) + row * r.columns : nullptr;
#pragma omp simd
    for (std::int64_t c = 0; c < r.columns; ++c) {
      Acc<T> v = widen(px[c]);
      if constexpr (with_bias) v += widen(pb[c]);
      if constexpr (with_residual) v += widen(pr[c]);
      px[c] = narrow<T>(v);
    }
  }
}

template <class T>
void add_bias(RowRange r, void* x, const void* bias, const void* residual) {
  if (bias != nullptr && residual != nullptr) {
    add_bias_rows<T, true, true>(r, x, bias, residual);
  } else if (bias != nullptr) {
    add_bias_rows<T, true, false>(r, x, bias, residual);
  } else if (residual != nullptr) {
    add_bias_rows<T, false, true>(r, x, bias, residual);
  }
}

/// Sums of each column over the rows of the range.
template <class T>
void column_sum(RowRange r, const void* x, void* partial) {
  Acc<T>* __restrict sum = as<Acc<T>>(partial);
  for (std::int64_t c = 0; c < r.columns; ++c) sum[c] = 0;
  for (std::int64_t row = r.begin; row < r.end; ++row) {
    const T* __restrict px = as<T>(x) + row * r.columns;
#pragma omp simd
    for (std::int64_t c = 0; c < r.columns; ++c) sum[c] += widen(px[c]);
  }
}

/// Joins the sums of all blocks of rows in their order.
template <class T>
void combine(RowRange r, std::int64_t blocks, const void* partials, Accumulation accumulation,
             void* target) {
  using A = Acc<T>;
  const A* __restrict p = as<A>(partials);
  T* __restrict out = as<T>(target);
  // The sums of so many columns stay in registers or in the first cache while the blocks pass.
  constexpr std::int64_t width = 64;
  for (std::int64_t first = r.begin; first < r.end; first += width) {
    const std::int64_t count = r.end - first < width ? r.end - first : width;
    A sum[width] = {};
    for (std::int64_t b = 0; b < blocks; ++b) {
      for (std::int64_t c = 0; c < count; ++c) sum[c] += p[b * r.columns + first + c];
    }
    for (std::int64_t c = 0; c < count; ++c) {
      const A old = accumulation == Accumulation::add ? widen(out[first + c]) : A(0);
      out[first + c] = narrow<T>(old + sum[c]);
    }
  }
}

}  // namespace
}  // namespace heteroperf
