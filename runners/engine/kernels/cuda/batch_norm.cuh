#pragma once

// Batch norm over channels-last images, seen as a matrix of pixels × channels. Statistics are made
// in two steps: tiles of columns × blocks of rows, then the blocks joined in their order. The
// number of blocks depends on the shape alone, so the bits are the same run after run.
#include "runners/engine/kernels/cuda/device_kernels.hpp"
#include "runners/engine/kernels/cuda/reductions.cuh"
#include "runners/engine/kernels/vector_math.hpp"

namespace heteroperf {
namespace {

/// Mean and sum of squared deviations of each column over one block of rows.
template <class T>
__global__ void moment_tiles(std::int64_t rows, std::int64_t columns, std::int64_t rows_per_block,
                             const T* x, Acc<T>* means, Acc<T>* deviations) {
  using A = Acc<T>;
  HETEROPERF_SHARED A center[tile_columns];
  const TilePlace at = tile_place(rows, columns, rows_per_block);
  A sum = 0, squares = 0;
  for (std::int64_t row = at.first + threadIdx.y; at.inside && row < at.last; row += tile_rows) {
    sum += widen(x[row * columns + at.column]);
  }
  sum = sum_tile(sum);
  // The first row of threads has the sum; all rows need the mean for the second pass.
  if (threadIdx.y == 0) center[threadIdx.x] = sum / static_cast<A>(at.last - at.first);
  __syncthreads();
  const A mean = center[threadIdx.x];
  for (std::int64_t row = at.first + threadIdx.y; at.inside && row < at.last; row += tile_rows) {
    const A d = widen(x[row * columns + at.column]) - mean;
    squares += d * d;
  }
  squares = sum_tile(squares);
  if (!at.inside || threadIdx.y != 0) return;
  means[blockIdx.y * columns + at.column] = mean;
  deviations[blockIdx.y * columns + at.column] = squares;
}
template <class T>
void moments(RowRange r, const void* x, void* mean, void* deviation) {
  launch_tiles(moment_tiles<T>, r.end, r.columns, x, mean, deviation);
}

// The formula is batch_norm_kernels.hpp's.
template <class A>
__global__ void join_moments(std::int64_t columns, std::int64_t rows, std::int64_t block_rows,
                             const A* means, const A* deviations, A* mean, A* variance) {
  HETEROPERF_FOR_ITEMS(c, columns) {
    A m = 0, v = 0;
    for (std::int64_t block = 0; block * block_rows < rows; ++block) {
      const std::int64_t before = block * block_rows;
      const std::int64_t count = rows - before < block_rows ? rows - before : block_rows;
      const A share = static_cast<A>(count) / static_cast<A>(before + count);
      const A delta = means[block * columns + c] - m;
      m += delta * share;
      v += deviations[block * columns + c] + delta * delta * (static_cast<A>(before) * share);
    }
    mean[c] = m;
    variance[c] = v / static_cast<A>(rows);
  }
}
template <class T>
void combine_moments(RowRange r, std::int64_t rows, std::int64_t block_rows, const void* means,
                     const void* deviations, void* mean, void* variance) {
  using A = Acc<T>;
  launch_items(join_moments<A>, r.columns, rows, block_rows, means, deviations, mean, variance);
}

/// Scale and shift per channel: y = x · scale + shift is the whole norm.
template <class T>
__global__ void affine_columns(std::int64_t columns, Acc<T> eps, const Acc<T>* mean,
                               const Acc<T>* variance, const T* weight, const T* bias, Acc<T>* rstd,
                               Acc<T>* scale, Acc<T>* shift) {
  using A = Acc<T>;
  HETEROPERF_FOR_ITEMS(c, columns) {
    const A rs = A(1) / std::sqrt(variance[c] + eps), s = widen(weight[c]) * rs;
    rstd[c] = rs;
    scale[c] = s;
    shift[c] = widen(bias[c]) - mean[c] * s;
  }
}
template <class T>
void batch_norm_affine(RowRange r, double eps, const void* mean, const void* variance,
                       const void* weight, const void* bias, void* rstd, void* scale, void* shift) {
  launch_items(affine_columns<T>, r.columns, eps, mean, variance, weight, bias, rstd, scale, shift);
}

/// The factors per channel with which the input's gradient is one line per element.
template <class T>
__global__ void coefficient_columns(std::int64_t columns, std::int64_t rows, const Acc<T>* sum,
                                    const Acc<T>* sum_xhat, const Acc<T>* rstd, const T* weight,
                                    Acc<T>* a, Acc<T>* b, Acc<T>* c) {
  using A = Acc<T>;
  HETEROPERF_FOR_ITEMS(i, columns) {
    const A rs = rstd[i], slope = widen(weight[i]) * rs;
    a[i] = slope;
    b[i] = -slope * rs * sum_xhat[i] / static_cast<A>(rows);
    c[i] = -slope * sum[i] / static_cast<A>(rows);
  }
}
/// A thread per channel.
template <class T>
void batch_norm_coefficients(RowRange r, std::int64_t rows, const void* sum, const void* sum_xhat,
                             const void* rstd, const void* weight, void* a, void* b, void* c) {
  launch_items(coefficient_columns<T>, r.columns, rows, sum, sum_xhat, rstd, weight, a, b, c);
}

/// y = relu?(x · scale + shift + residual?).
template <class T, int n>
__global__ void scale_shift_rows(std::int64_t rows, std::int64_t packs, const T* x,
                                 const Acc<T>* scale, const Acc<T>* shift, const T* residual,
                                 bool with_relu, T* y) {
  using A = Acc<T>;
  HETEROPERF_FOR_MATRIX(row, rows, column, packs) {
    const std::int64_t i = row * packs + column;
    const Pack<T, n> from = load<n>(x, i);
    Pack<T, n> more, to;
    if (residual != nullptr) more = load<n>(residual, i);
    for (int k = 0; k < n; ++k) {
      A v = widen(from.at[k]) * scale[column * n + k] + shift[column * n + k];
      if (residual != nullptr) v += widen(more.at[k]);
      to.at[k] = narrow<T>(with_relu && v <= A(0) ? A(0) : v);
    }
    keep<n>(y, i, to);
  }
}
/// Channels that are no multiple of a pack are taken one by one.
template <class T>
void scale_shift(RowRange r, const void* x, const void* scale, const void* shift,
                 BatchNormEpilogue epilogue, void* y) {
  with_packs<T>(
      r.columns,
      [&](auto n) {
        launch_matrix(scale_shift_rows<T, n>, r.end, r.columns / n, x, scale, shift,
                      epilogue.residual, epilogue.relu, y);
      },
      x, epilogue.residual, y);
}

/// A gradient behind the relu; see KernelTable::batch_norm_sums.
template <class T>
struct MaskedElement {
  using A = Acc<T>;
  const T* dy;
  const T* x;
  const T* y;
  const A* scale;
  const A* shift;

  __device__ A at(std::int64_t i, std::int64_t column) const {
    const A g = widen(dy[i]);
    if (y != nullptr) return widen(y[i]) <= A(0) ? A(0) : g;
    if (scale == nullptr) return g;
    // Rounded as the forward stored it, so that both decide alike.
    const T forward = narrow<T>(widen(x[i]) * scale[column] + shift[column]);
    return widen(forward) <= A(0) ? A(0) : g;
  }
};

/// Σ g and Σ g x̂ of each column over one block of rows.
template <class T>
__global__ void batch_norm_sum_tiles(std::int64_t rows, std::int64_t columns,
                                     std::int64_t rows_per_block, MaskedElement<T> gradient,
                                     const Acc<T>* mean, const Acc<T>* rstd, Acc<T>* sums,
                                     Acc<T>* sums_xhat) {
  using A = Acc<T>;
  const TilePlace at = tile_place(rows, columns, rows_per_block);
  A sum = 0, sum_xhat = 0;
  for (std::int64_t row = at.first + threadIdx.y; at.inside && row < at.last; row += tile_rows) {
    const std::int64_t i = row * columns + at.column;
    const A v = gradient.at(i, at.column);
    sum += v;
    sum_xhat += v * (widen(gradient.x[i]) - mean[at.column]) * rstd[at.column];
  }
  sum = sum_tile(sum);
  sum_xhat = sum_tile(sum_xhat);
  if (!at.inside || threadIdx.y != 0) return;
  sums[blockIdx.y * columns + at.column] = sum;
  sums_xhat[blockIdx.y * columns + at.column] = sum_xhat;
}
template <class T>
void batch_norm_sums(RowRange r, const void* dy, const void* x, const void* y, const void* scale,
                     const void* shift, const void* mean, const void* rstd, void* sum,
                     void* sum_xhat) {
  using A = Acc<T>;
  const MaskedElement<T> gradient{as<T>(dy), as<T>(x), as<T>(y), as<A>(scale), as<A>(shift)};
  launch_tiles(batch_norm_sum_tiles<T>, r.end, r.columns, gradient, mean, rstd, sum, sum_xhat);
}

/// The input's gradient and, behind a residual sum, the residual's.
template <class T>
__global__ void batch_norm_inputs(std::int64_t rows, std::int64_t columns,
                                  MaskedElement<T> gradient, const Acc<T>* mean, const Acc<T>* a,
                                  const Acc<T>* b, const Acc<T>* c, T* dx, T* masked) {
  HETEROPERF_FOR_MATRIX(row, rows, column, columns) {
    const std::int64_t i = row * columns + column;
    const Acc<T> g = gradient.at(i, column);
    if (masked != nullptr) masked[i] = narrow<T>(g);
    dx[i] =
        narrow<T>(a[column] * g + b[column] * (widen(gradient.x[i]) - mean[column]) + c[column]);
  }
}
/// A thread per element: the sums over rows are already in the factors.
template <class T>
void batch_norm_backward(RowRange r, const void* dy, const void* x, const void* y,
                         const void* scale, const void* shift, const void* mean, const void* a,
                         const void* b, const void* c, void* dx, void* masked) {
  using A = Acc<T>;
  const MaskedElement<T> gradient{as<T>(dy), as<T>(x), as<T>(y), as<A>(scale), as<A>(shift)};
  launch_matrix(batch_norm_inputs<T>, r.end, r.columns, gradient, mean, a, b, c, dx, masked);
}

}  // namespace
}  // namespace heteroperf
