#pragma once

// Batch norm over channels-last images, seen as a matrix of pixels × channels. Statistics are made
// per block of rows and joined in the order of the blocks.
#include "runners/engine/kernels/kernel_table.hpp"
#include "runners/engine/kernels/vector_math.hpp"

namespace heteroperf {
namespace {

/// Mean and sum of squared deviations of each column over the rows of the range.
template <class T>
void moments(RowRange r, const void* x, void* mean, void* deviation) {
  using A = Acc<T>;
  const std::int64_t n = r.columns;
  A* __restrict m = as<A>(mean);
  A* __restrict d = as<A>(deviation);
  for (std::int64_t c = 0; c < n; ++c) m[c] = d[c] = A(0);
  for (std::int64_t row = r.begin; row < r.end; ++row) {
    const T* __restrict px = as<T>(x) + row * n;
#pragma omp simd
    for (std::int64_t c = 0; c < n; ++c) m[c] += widen(px[c]);
  }
  const A share = A(1) / static_cast<A>(r.end - r.begin);
  for (std::int64_t c = 0; c < n; ++c) m[c] *= share;
  for (std::int64_t row = r.begin; row < r.end; ++row) {
    const T* __restrict px = as<T>(x) + row * n;
#pragma omp simd
    for (std::int64_t c = 0; c < n; ++c) {
      const A v = widen(px[c]) - m[c];
      d[c] += v * v;
    }
  }
}

// Chan, Golub, LeVeque, "Updating formulae and a pairwise algorithm for computing sample
// variances" (1979), equation 2.1.
template <class T>
void combine_moments(RowRange r, std::int64_t rows, std::int64_t block_rows, const void* means,
                     const void* deviations, void* mean, void* variance) {
  using A = Acc<T>;
  const A* __restrict m = as<A>(means);
  const A* __restrict d = as<A>(deviations);
  A* __restrict out_mean = as<A>(mean);
  A* __restrict out_variance = as<A>(variance);
  const std::int64_t n = r.columns;
  for (std::int64_t c = r.begin; c < r.end; ++c) out_mean[c] = out_variance[c] = A(0);
  for (std::int64_t block = 0; block * block_rows < rows; ++block) {
    const std::int64_t before = block * block_rows;
    const std::int64_t count = rows - before < block_rows ? rows - before : block_rows;
    const A share = static_cast<A>(count) / static_cast<A>(before + count);
    const A weight = static_cast<A>(before) * share;
#pragma omp simd
    for (std::int64_t c = r.begin; c < r.end; ++c) {
      const A delta = m[block * n + c] - out_mean[c];
      out_mean[c] += delta * share;
      out_variance[c] += d[block * n + c] + delta * delta * weight;
    }
  }
  for (std::int64_t c = r.begin; c < r.end; ++c) out_variance[c] /= static_cast<A>(rows);
}

/// Scale and shift per channel: y = x · scale + shift is the whole norm.
template <class T>
void batch_norm_affine(RowRange r, double eps, const void* mean, const void* variance,
                       const void* weight, const void* bias, void* rstd, void* scale, void* shift) {
  using A = Acc<T>;
  for (std::int64_t c = r.begin; c < r.end; ++c) {
    const A rs = A(1) / std::sqrt(as<A>(variance)[c] + static_cast<A>(eps));
    const A s = widen(as<T>(weight)[c]) * rs;
    as<A>(rstd)[c] = rs;
    as<A>(scale)[c] = s;
    as<A>(shift)[c] = widen(as<T>(bias)[c]) - as<A>(mean)[c] * s;
  }
}

// dx = w · rstd · (g − mean(g) − x̂ · mean(g x̂)) (Ioffe, Szegedy, arXiv:1502.03167, section 3).
template <class T>
void batch_norm_coefficients(RowRange r, std::int64_t rows, const void* sum, const void* sum_xhat,
                             const void* rstd, const void* weight, void* a, void* b, void* c) {
  using A = Acc<T>;
  const auto n = static_cast<A>(rows);
  for (std::int64_t i = r.begin; i < r.end; ++i) {
    const A rs = as<A>(rstd)[i], slope = widen(as<T>(weight)[i]) * rs;
    as<A>(a)[i] = slope;
    as<A>(b)[i] = -slope * rs * as<A>(sum_xhat)[i] / n;
    as<A>(c)[i] = -slope * as<A>(sum)[i] / n;
  }
}

/// y = relu?(x · scale + shift + residual?).
template <class T, bool with_relu, bool with_residual>
HETEROPERF_KERNEL void scale_shift_rows(RowRange r, const void* x, const void* scale,
                                        const void* shift, const void* residual, void* y) {
  using A = Acc<T>;
  const A* __restrict s = as<A>(scale);
  const A* __restrict b = as<A>(shift);
  for (std::int64_t row = r.begin; row < r.end; ++row) {
    const T* __restrict px = as<T>(x) + row * r.columns;
    const T* __restrict pr = with_residual ? as<T>(residual) + row * r.columns : nullptr;
    T* __restrict py = as<T>(y) + row * r.columns;
#pragma omp simd
    for (std::int64_t c = 0; c < r.columns; ++c) {
      A v = widen(px[c]) * s[c] + b[c];
      if constexpr (with_residual) v += widen(pr[c]);
      if constexpr (with_relu) v = v <= A(0) ? A(0) : v;
      py[c] = narrow<T>(v);
    }
  }
}

/// ReLU and residual are decided outside the loops: four loops without branches.
template <class T>
void scale_shift(RowRange r, const void* x, const void* scale, const void* shift,
                 BatchNormEpilogue epilogue, void* y) {
  if (epilogue.relu && epilogue.residual != nullptr) {
    scale_shift_rows<T, true, true>(r, x, scale, shift, epilogue.residual, y);
  } else if (epilogue.relu) {
    scale_shift_rows<T, true, false>(r, x, scale, shift, nullptr, y);
  } else if (epilogue.residual != nullptr) {
    scale_shift_rows<T, false, true>(r, x, scale, shift, epilogue.residual, y);
  } else {
    scale_shift_rows<T, false, false>(r, x, scale, shift, nullptr, y);
  }
}

/// The way in which the ReLU's mask is known: there is none, from its output, or from its input,
/// made again.
enum class Mask { none, output, recomputed };

/// One row's gradient behind the relu, element by element.
template <class T, Mask mask>
struct MaskedGradient {
  using A = Acc<T>;
  const T* __restrict dy;
  const T* __restrict x;
  const T* __restrict y;
  const A* __restrict scale;
  const A* __restrict shift;

  HETEROPERF_KERNEL MaskedGradient row(std::int64_t offset) const {
    return {dy + offset, x + offset, mask == Mask::output ? y + offset : nullptr, scale, shift};
  }
  HETEROPERF_KERNEL A at(std::int64_t c) const {
    const A g = widen(dy[c]);
    if constexpr (mask == Mask::output) return widen(y[c]) <= A(0) ? A(0) : g;
    // Rounded as the forward stored it, so that both decide alike.
    if constexpr (mask == Mask::recomputed) {
      return widen(narrow<T>(widen(x[c]) * scale[c] + shift[c])) <= A(0) ? A(0) : g;
    }
    return g;
  }
};

/// Calls body with the gradient of the kind of mask that the pointers say.
template <class T, class Body>
HETEROPERF_KERNEL void with_mask(const void* dy, const void* x, const void* y, const void* scale,
                                 const void* shift, Body body) {
  using A = Acc<T>;
  if (y != nullptr) {
    body(MaskedGradient<T, Mask::output>{as<T>(dy), as<T>(x), as<T>(y), nullptr, nullptr});
  } else if (scale != nullptr) {
    body(MaskedGradient<T, Mask::recomputed>{as<T>(dy), as<T>(x), nullptr, as<A>(scale),
                                             as<A>(shift)});
  } else {
    body(MaskedGradient<T, Mask::none>{as<T>(dy), as<T>(x), nullptr, nullptr, nullptr});
  }
}

/// Σ g and Σ g x̂ of each column over the rows of the range.
template <class T>
void batch_norm_sums(RowRange r, const void* dy, const void* x, const void* y, const void* scale,
                     const void* shift, const void* mean, const void* rstd, void* sum,
                     void* sum_xhat) {
  using A = Acc<T>;
  const A* __restrict mu = as<A>(mean);
  const A* __restrict rs = as<A>(rstd);
  A* __restrict s = as<A>(sum);
  A* __restrict sx = as<A>(sum_xhat);
  const std::int64_t n = r.columns;
  for (std::int64_t c = 0; c < n; ++c) s[c] = sx[c] = A(0);
  with_mask<T>(
      dy, x, y, scale, shift, [&](auto gradient) __attribute__((always_inline)) {
        for (std::int64_t row = r.begin; row < r.end; ++row) {
          const auto g = gradient.row(row * n);
#pragma omp simd
          for (std::int64_t c = 0; c < n; ++c) {
            const A v = g.at(c);
            s[c] += v;
            sx[c] += v * (widen(g.x[c]) - mu[c]) * rs[c];
          }
        }
      });
}

/// One line per element, with factors per channel from batch_norm_coefficients().
template <class T>
void batch_norm_backward(RowRange r, const void* dy, const void* x, const void* y,
                         const void* scale, const void* shift, const void* mean, const void* a,
                         const void* b, const void* c, void* dx, void* masked) {
  using A = Acc<T>;
  const A* __restrict mu = as<A>(mean);
  const A* __restrict pa = as<A>(a);
  const A* __restrict pb = as<A>(b);
  const A* __restrict pc = as<A>(c);
  const std::int64_t n = r.columns;
  with_mask<T>(
      dy, x, y, scale, shift, [&](auto gradient) __attribute__((always_inline)) {
        for (std::int64_t row = r.begin; row < r.end; ++row) {
          const auto g = gradient.row(row * n);
          T* __restrict pdx = as<T>(dx) + row * n;
          if (masked != nullptr) {
            T* __restrict pm = as<T>(masked) + row * n;
#pragma omp simd
            for (std::int64_t i = 0; i < n; ++i) {
              const A v = g.at(i);
              pm[i] = narrow<T>(v);
              pdx[i] = narrow<T>(pa[i] * v + pb[i] * (widen(g.x[i]) - mu[i]) + pc[i]);
            }
          } else {
#pragma omp simd
            for (std::int64_t i = 0; i < n; ++i) {
              pdx[i] = narrow<T>(pa[i] * g.at(i) + pb[i] * (widen(g.x[i]) - mu[i]) + pc[i]);
            }
          }
        }
      });
}

}  // namespace
}  // namespace heteroperf
