#pragma once

// Norms over rows. A block of threads works on a row and joins its sums by shuffles; gradients of
// the parameters are sums over rows, made by tiles as in batch norm.
#include "runners/engine/kernels/cuda/device_kernels.hpp"
#include "runners/engine/kernels/cuda/reductions.cuh"
#include "runners/engine/kernels/vector_math.hpp"

namespace heteroperf {
namespace {

/// Mean and 1/deviation of a row in two passes over it, then the output in a third.
template <class T>
__global__ void layer_norm_rows(std::int64_t rows, std::int64_t n, Acc<T> eps, const T* x,
                                const T* weight, const T* bias, T* y, Acc<T>* mean, Acc<T>* rstd) {
  using A = Acc<T>;
  HETEROPERF_FOR_ROWS(row, rows) {
    const T* px = x + row * n;
    A sum = 0, squares = 0;
    HETEROPERF_FOR_COLUMNS(c, n) sum += widen(px[c]);
    const A mu = sum_block(sum) / static_cast<A>(n);
    HETEROPERF_FOR_COLUMNS(c, n) {
      const A d = widen(px[c]) - mu;
      squares += d * d;
    }
    const A rs = A(1) / std::sqrt(sum_block(squares) / static_cast<A>(n) + eps);
    HETEROPERF_FOR_COLUMNS(c, n) {
      const A v = (widen(px[c]) - mu) * rs * widen(weight[c]);
      y[row * n + c] = narrow<T>(bias != nullptr ? v + widen(bias[c]) : v);
    }
    if (threadIdx.x != 0) continue;
    mean[row] = mu;
    rstd[row] = rs;
  }
}
template <class T>
void layer_norm(RowRange r, double eps, const void* x, const void* weight, const void* bias,
                void* y, void* mean, void* rstd) {
  launch_rows(layer_norm_rows<T>, r.end, r.columns, eps, x, weight, bias, y, mean, rstd);
}

// The formula is norm_kernels.hpp's.
template <class T>
__global__ void layer_norm_inputs(std::int64_t rows, std::int64_t n, const T* dy, const T* x,
                                  const T* weight, const Acc<T>* mean, const Acc<T>* rstd,
                                  Accumulation accumulation, T* dx) {
  using A = Acc<T>;
  HETEROPERF_FOR_ROWS(row, rows) {
    const A mu = mean[row], rs = rstd[row];
    A sum = 0, sum_xhat = 0;
    HETEROPERF_FOR_COLUMNS(c, n) {
      const A g = widen(dy[row * n + c]) * widen(weight[c]);
      sum += g;
      sum_xhat += g * ((widen(x[row * n + c]) - mu) * rs);
    }
    // All threads call sum_block(), and all get the sum.
    const A slope = -rs * sum_block(sum_xhat) / static_cast<A>(n);
    const A offset = -rs * sum_block(sum) / static_cast<A>(n);
    HETEROPERF_FOR_COLUMNS(c, n) {
      const std::int64_t i = row * n + c;
      const A xhat = (widen(x[i]) - mu) * rs;
      const A v = rs * widen(dy[i]) * widen(weight[c]) + slope * xhat + offset;
      dx[i] = narrow<T>(accumulation == Accumulation::add ? widen(dx[i]) + v : v);
    }
  }
}
/// The parameters' gradients over one block of rows.
template <class T>
__global__ void layer_norm_parameters(std::int64_t rows, std::int64_t columns,
                                      std::int64_t rows_per_block, const T* dy, const T* x,
                                      const Acc<T>* mean, const Acc<T>* rstd, Acc<T>* weight_sums,
                                      Acc<T>* bias_sums) {
  using A = Acc<T>;
  const TilePlace at = tile_place(rows, columns, rows_per_block);
  A dw = 0, db = 0;
  for (std::int64_t row = at.first + threadIdx.y; at.inside && row < at.last; row += tile_rows) {
    const std::int64_t i = row * columns + at.column;
    const A d = widen(dy[i]);
    dw += d * ((widen(x[i]) - mean[row]) * rstd[row]);
    db += d;
  }
  dw = sum_tile(dw);
  db = sum_tile(db);
  if (!at.inside || threadIdx.y != 0) return;
  weight_sums[blockIdx.y * columns + at.column] = dw;
  bias_sums[blockIdx.y * columns + at.column] = db;
}
/// The input's gradient needs a block of threads per row, the parameters' tiles of columns: two
/// kernels, each only where it is asked for.
template <class T>
void layer_norm_backward(RowRange r, const void* dy, const void* x, const void* weight,
                         const void* mean, const void* rstd, Accumulation accumulation, void* dx,
                         void* weight_partial, void* bias_partial) {
  if (dx != nullptr) {
    launch_rows(layer_norm_inputs<T>, r.end, r.columns, dy, x, weight, mean, rstd, accumulation,
                dx);
  }
  if (weight_partial == nullptr) return;
  launch_tiles(layer_norm_parameters<T>, r.end, r.columns, dy, x, mean, rstd, weight_partial,
               bias_partial);
}

/// 1/root mean square of a row, then the output.
template <class T>
__global__ void rms_norm_rows(std::int64_t rows, std::int64_t n, Acc<T> eps, const T* x,
                              const T* weight, T* y, Acc<T>* rstd) {
  using A = Acc<T>;
  HETEROPERF_FOR_ROWS(row, rows) {
    A squares = 0;
    HETEROPERF_FOR_COLUMNS(c, n) squares += widen(x[row * n + c]) * widen(x[row * n + c]);
    const A rs = A(1) / std::sqrt(sum_block(squares) / static_cast<A>(n) + eps);
    HETEROPERF_FOR_COLUMNS(c, n) {
      y[row * n + c] = narrow<T>(widen(x[row * n + c]) * rs * widen(weight[c]));
    }
    if (threadIdx.x == 0) rstd[row] = rs;
  }
}
template <class T>
void rms_norm(RowRange r, double eps, const void* x, const void* weight, void* y, void* rstd) {
  launch_rows(rms_norm_rows<T>, r.end, r.columns, eps, x, weight, y, rstd);
}

/// The input's gradient, by the formula of norm_kernels.hpp.
template <class T>
__global__ void rms_norm_inputs(std::int64_t rows, std::int64_t n, const T* dy, const T* x,
                                const T* weight, const Acc<T>* rstd, Accumulation accumulation,
                                T* dx) {
  using A = Acc<T>;
  HETEROPERF_FOR_ROWS(row, rows) {
    const A rs = rstd[row];
    A sum = 0;
    HETEROPERF_FOR_COLUMNS(c, n) {
      sum += widen(dy[row * n + c]) * widen(weight[c]) * widen(x[row * n + c]);
    }
    const A slope = -rs * rs * rs * sum_block(sum) / static_cast<A>(n);
    HETEROPERF_FOR_COLUMNS(c, n) {
      const std::int64_t i = row * n + c;
      const A v = rs * widen(dy[i]) * widen(weight[c]) + slope * widen(x[i]);
      dx[i] = narrow<T>(accumulation == Accumulation::add ? widen(dx[i]) + v : v);
    }
  }
}
/// The weight's gradient over one block of rows.
template <class T>
__global__ void rms_norm_parameters(std::int64_t rows, std::int64_t columns,
                                    std::int64_t rows_per_block, const T* dy, const T* x,
                                    const Acc<T>* rstd, Acc<T>* weight_sums) {
  const TilePlace at = tile_place(rows, columns, rows_per_block);
  Acc<T> dw = 0;
  for (std::int64_t row = at.first + threadIdx.y; at.inside && row < at.last; row += tile_rows) {
    const std::int64_t i = row * columns + at.column;
    dw += widen(dy[i]) * widen(x[i]) * rstd[row];
  }
  dw = sum_tile(dw);
  if (at.inside && threadIdx.y == 0) weight_sums[blockIdx.y * columns + at.column] = dw;
}
/// As layer_norm_backward(), without a mean and a bias.
template <class T>
void rms_norm_backward(RowRange r, const void* dy, const void* x, const void* weight,
                       const void* rstd, Accumulation accumulation, void* dx,
                       void* weight_partial) {
  if (dx != nullptr) {
    launch_rows(rms_norm_inputs<T>, r.end, r.columns, dy, x, weight, rstd, accumulation, dx);
  }
  if (weight_partial == nullptr) return;
  launch_tiles(rms_norm_parameters<T>, r.end, r.columns, dy, x, rstd, weight_partial);
}

}  // namespace
}  // namespace heteroperf
