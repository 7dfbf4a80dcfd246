#pragma once

// Layer norm and RMS norm: every row is normalised by its own statistics. The backward pass
// computes the input's gradient and, where they are asked for, the sums that are the parameters'
// gradients.
#include "runners/engine/kernels/kernel_table.hpp"
#include "runners/engine/kernels/vector_math.hpp"

namespace heteroperf {
namespace {

/// Σ x.
template <class T>
HETEROPERF_KERNEL Acc<T> row_sum(const T* __restrict x, std::int64_t n) {
  Acc<T> sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t c = 0; c < n; ++c) sum += widen(x[c]);
  return sum;
}

/// Σ (x − center)².
template <class T>
HETEROPERF_KERNEL Acc<T> row_squares(const T* __restrict x, std::int64_t n, Acc<T> center) {
  Acc<T> sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t c = 0; c < n; ++c) {
    const Acc<T> d = widen(x[c]) - center;
    sum += d * d;
  }
  return sum;
}

/// Keeps mean and 1/deviation of each row for the backward pass.
template <class T>
void layer_norm(RowRange r, double eps, const void* x, const void* weight, const void* bias,
                void* y, void* mean, void* rstd) {
  using A = Acc<T>;
  const T* __restrict w = as<T>(weight);
  const T* __restrict b = as<T>(bias);
  const std::int64_t n = r.columns;
  for (std::int64_t row = r.begin; row < r.end; ++row) {
    const T* __restrict px = as<T>(x) + row * n;
    T* __restrict py = as<T>(y) + row * n;
    const A mu = row_sum(px, n) / static_cast<A>(n);
    const A rs = A(1) / std::sqrt(row_squares(px, n, mu) / static_cast<A>(n) + static_cast<A>(eps));
    if (b != nullptr) {
#pragma omp simd
      for (std::int64_t c = 0; c < n; ++c) {
        py[c] = narrow<T>((widen(px[c]) - mu) * rs * widen(w[c]) + widen(b[c]));
      }
    } else {
#pragma omp simd
      for (std::int64_t c = 0; c < n; ++c) {
        py[c] = narrow<T>((widen(px[c]) - mu) * rs * widen(w[c]));
      }
    }
    as<A>(mean)[row] = mu;
    as<A>(rstd)[row] = rs;
  }
}

// dx = rstd · (g − mean(g) − x̂ · mean(g x̂)), g = dy · w (Ba, Kiros, Hinton, arXiv:1607.06450).
template <class T, bool want_input, bool want_parameters>
HETEROPERF_KERNEL void layer_norm_backward_rows(RowRange r, const void* dy, const void* x,
                                                const T* __restrict w, const Acc<T>* mean,
                                                const Acc<T>* rstd, Accumulation accumulation,
                                                void* dx, Acc<T>* __restrict dw,
                                                Acc<T>* __restrict db) {
  using A = Acc<T>;
  const std::int64_t n = r.columns;
  for (std::int64_t row = r.begin; row < r.end; ++row) {
    const T* __restrict pdy = as<T>(dy) + row * n;
    const T* __restrict px = as<T>(x) + row * n;
    const A mu = mean[row], rs = rstd[row];
    A sum = 0, sum_xhat = 0;
#pragma omp simd reduction(+ : sum, sum_xhat)
    for (std::int64_t c = 0; c < n; ++c) {
      const A d = widen(pdy[c]), xhat = (widen(px[c]) - mu) * rs;
      if constexpr (want_input) {
        sum += d * widen(w[c]);
        sum_xhat += d * widen(w[c]) * xhat;
      }
      if constexpr (want_parameters) {
        dw[c] += d * xhat;
        db[c] += d;
      }
    }
    if constexpr (want_input) {
      T* __restrict pdx = as<T>(dx) + row * n;
      // The means of g and g x̂ go into two factors, so that the second loop is one line per
      // element.
      const A slope = -rs * sum_xhat / static_cast<A>(n), offset = -rs * sum / static_cast<A>(n);
      const auto gradient = [&](std::int64_t c) __attribute__((always_inline)) {
        const A xhat = (widen(px[c]) - mu) * rs;
        return rs * widen(pdy[c]) * widen(w[c]) + slope * xhat + offset;
      };
      if (accumulation == Accumulation::add) {
#pragma omp simd
        for (std::int64_t c = 0; c < n; ++c) pdx[c] = narrow<T>(widen(pdx[c]) + gradient(c));
      } else {
#pragma omp simd
        for (std::int64_t c = 0; c < n; ++c) pdx[c] = narrow<T>(gradient(c));
      }
    }
  }
}

/// The gradients that nobody asked for are compiled out of the loops.
template <class T>
void layer_norm_backward(RowRange r, const void* dy, const void* x, const void* weight,
                         const void* mean, const void* rstd, Accumulation accumulation, void* dx,
                         void* weight_partial, void* bias_partial) {
  using A = Acc<T>;
  A* dw = as<A>(weight_partial);
  A* db = as<A>(bias_partial);
  const auto run = [&](auto rows) __attribute__((always_inline)) {
    rows(r, dy, x, as<T>(weight), as<A>(mean), as<A>(rstd), accumulation, dx, dw, db);
  };
  if (dw == nullptr) return run(layer_norm_backward_rows<T, true, false>);
  for (std::int64_t c = 0; c < r.columns; ++c) dw[c] = db[c] = A(0);
  if (dx == nullptr) return run(layer_norm_backward_rows<T, false, true>);
  run(layer_norm_backward_rows<T, true, true>);
}

/// Keeps 1/root mean square of each row for the backward pass.
template <class T>
void rms_norm(RowRange r, double eps, const void* x, const void* weight, void* y, void* rstd) {
  using A = Acc<T>;
  const T* __restrict w = as<T>(weight);
  const std::int64_t n = r.columns;
  for (std::int64_t row = r.begin; row < r.end; ++row) {
    const T* __restrict px = as<T>(x) + row * n;
    T* __restrict py = as<T>(y) + row * n;
    const A rs =
        A(1) / std::sqrt(row_squares(px, n, A(0)) / static_cast<A>(n) + static_cast<A>(eps));
#pragma omp simd
    for (std::int64_t c = 0; c < n; ++c) py[c] = narrow<T>(widen(px[c]) * rs * widen(w[c]));
    as<A>(rstd)[row] = rs;
  }
}

// dx = rstd · (g − x̂ · mean(g x̂)), x̂ = x · rstd (Zhang, Sennrich, arXiv:1910.07467).
template <class T>
void rms_norm_backward(RowRange r, const void* dy, const void* x, const void* weight,
                       const void* rstd, Accumulation accumulation, void* dx,
                       void* weight_partial) {
  using A = Acc<T>;
  const T* __restrict w = as<T>(weight);
  A* __restrict dw = as<A>(weight_partial);
  const std::int64_t n = r.columns;
  for (std::int64_t c = 0; dw != nullptr && c < n; ++c) dw[c] = A(0);
  for (std::int64_t row = r.begin; row < r.end; ++row) {
    const T* __restrict pdy = as<T>(dy) + row * n;
    const T* __restrict px = as<T>(x) + row * n;
    const A rs = as<A>(rstd)[row];
    if (dw != nullptr) {
#pragma omp simd
      for (std::int64_t c = 0; c < n; ++c) dw[c] += widen(pdy[c]) * widen(px[c]) * rs;
    }
    if (dx == nullptr) continue;
    A sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t c = 0; c < n; ++c) sum += widen(pdy[c]) * widen(w[c]) * widen(px[c]);
    T* __restrict pdx = as<T>(dx) + row * n;
    const A slope = -rs * rs * rs * sum / static_cast<A>(n);
    const auto gradient = [&](std::int64_t c) __attribute__((always_inline)) {
      return rs * widen(pdy[c]) * widen(w[c]) + slope * widen(px[c]);
    };
    if (accumulation == Accumulation::add) {
#pragma omp simd
      for (std::int64_t c = 0; c < n; ++c) pdx[c] = narrow<T>(widen(pdx[c]) + gradient(c));
    } else {
#pragma omp simd
      for (std::int64_t c = 0; c < n; ++c) pdx[c] = narrow<T>(gradient(c));
    }
  }
}

}  // namespace
}  // namespace heteroperf
