#pragma once

// Element-wise kernels, and the passes of a linear layer around its product. Neighbouring elements
// are loaded and stored as packs of 16 bytes where size and addresses allow, because these kernels
// do little else than move memory. A function is an object with operator(), so that one kernel
// serves all of them.
#include <type_traits>

#include "runners/engine/kernels/cuda/device_kernels.hpp"
#include "runners/engine/kernels/cuda/reductions.cuh"
#include "runners/engine/kernels/vector_math.hpp"

namespace heteroperf {
namespace {

// y may be one of the inputs: every element is read before it is written.
template <class T, int n, class F>
__global__ void map_one(std::int64_t packs, F f, const T* a, T* y) {
  HETEROPERF_FOR_ITEMS(i, packs) {
    const Pack<T, n> from = load<n>(a, i);
    Pack<T, n> to;
    for (int k = 0; k < n; ++k) to.at[k] = narrow<T>(f(widen(from.at[k])));
    keep<n>(y, i, to);
  }
}
template <class T, int n, class F>
__global__ void map_two(std::int64_t packs, F f, const T* a, const T* b, T* y) {
  HETEROPERF_FOR_ITEMS(i, packs) {
    const Pack<T, n> left = load<n>(a, i), right = load<n>(b, i);
    Pack<T, n> to;
    for (int k = 0; k < n; ++k) to.at[k] = narrow<T>(f(widen(left.at[k]), widen(right.at[k])));
    keep<n>(y, i, to);
  }
}

/// Calls body(std::integral_constant) with the widest pack that elements and pointers allow.
template <class T, class Body, class... P>
void with_packs(std::int64_t elements, const Body& body, const P*... pointers) {
  constexpr int wide = pack_width<T>;
  if (elements % wide == 0 && aligned_for_packs(pointers...)) {
    body(std::integral_constant<int, wide>());
  } else {
    body(std::integral_constant<int, 1>());
  }
}

/// y = f(a), element by element.
template <class T, class F>
void map(RowRange r, F f, const void* a, void* y) {
  const std::int64_t count = r.end * r.columns;
  with_packs<T>(
      count, [&](auto n) { launch_items(map_one<T, n, F>, count / n, f, a, y); }, a, y);
}
/// y = f(a, b), element by element.
template <class T, class F>
void map(RowRange r, F f, const void* a, const void* b, void* y) {
  const std::int64_t count = r.end * r.columns;
  with_packs<T>(
      count, [&](auto n) { launch_items(map_two<T, n, F>, count / n, f, a, b, y); }, a, b, y);
}

/// Both gradients of silu(gate) · up in one pass.
template <class T, int n>
__global__ void swiglu_gradients(std::int64_t packs, const T* dy, const T* gate, const T* up,
                                 T* dgate, T* dup) {
  HETEROPERF_FOR_ITEMS(i, packs) {
    const Pack<T, n> g = load<n>(dy, i), at_gate = load<n>(gate, i), at_up = load<n>(up, i);
    Pack<T, n> to_gate, to_up;
    for (int k = 0; k < n; ++k) {
      const auto at = SiluFunction::at(widen(at_gate.at[k]));
      to_gate.at[k] = narrow<T>(widen(g.at[k]) * widen(at_up.at[k]) * at.slope);
      to_up.at[k] = narrow<T>(widen(g.at[k]) * at.value);
    }
    keep<n>(dgate, i, to_gate);
    keep<n>(dup, i, to_up);
  }
}
/// Packs where all five arrays allow them.
template <class T>
void swiglu_backward(RowRange r, const void* dy, const void* gate, const void* up, void* dgate,
                     void* dup) {
  const std::int64_t count = r.end * r.columns;
  with_packs<T>(
      count,
      [&](auto n) { launch_items(swiglu_gradients<T, n>, count / n, dy, gate, up, dgate, dup); },
      dy, gate, up, dgate, dup);
}

/// x += bias, stored back because the backward pass needs it; y = f(x).
template <class T, int n, class Function>
__global__ void activate_sum_rows(std::int64_t rows, std::int64_t packs, T* x, const T* bias,
                                  T* y) {
  HETEROPERF_FOR_MATRIX(row, rows, column, packs) {
    // Packs do not cross rows: columns are a multiple of their width.
    const std::int64_t i = row * packs + column;
    Pack<T, n> sum = load<n>(x, i), to;
    // The bias is the same for all rows.
    const Pack<T, n> b = load<n>(bias, column);
    for (int k = 0; k < n; ++k) {
      sum.at[k] = narrow<T>(widen(sum.at[k]) + widen(b.at[k]));
      to.at[k] = narrow<T>(Function::value(widen(sum.at[k])));
    }
    keep<n>(x, i, sum);
    keep<n>(y, i, to);
  }
}
template <class T, class Function>
void activate_sum(RowRange r, void* x, const void* bias, void* y) {
  with_packs<T>(
      r.columns,
      [&](auto n) {
        launch_matrix(activate_sum_rows<T, n, Function>, r.end, r.columns / n, x, bias, y);
      },
      x, bias, y);
}
/// The gradient behind a function, and its column sums per block of rows.
template <class T, class Function>
__global__ void gradient_and_sum_tiles(std::int64_t rows, std::int64_t columns,
                                       std::int64_t rows_per_block, const T* dy, const T* kept,
                                       T* dx, Acc<T>* sums) {
  const TilePlace at = tile_place(rows, columns, rows_per_block);
  Acc<T> sum = 0;
  for (std::int64_t row = at.first + threadIdx.y; at.inside && row < at.last; row += tile_rows) {
    const std::int64_t i = row * columns + at.column;
    const Acc<T> g = Function::gradient(widen(dy[i]), widen(kept[i]));
    dx[i] = narrow<T>(g);
    sum += g;
  }
  sum = sum_tile(sum);
  if (at.inside && threadIdx.y == 0) sums[blockIdx.y * columns + at.column] = sum;
}
/// A tile walks down the columns, so that each thread adds up one of them; where no sums are asked
/// for, the packs of map() are faster.
template <class T, class Function>
void gradient_and_sums(RowRange r, const void* dy, const void* kept, void* dx, void* sums) {
  launch_tiles(gradient_and_sum_tiles<T, Function>, r.end, r.columns, dy, kept, dx, sums);
}
/// x += bias + residual; each of the two may be missing.
template <class T, int n>
__global__ void add_bias_rows(std::int64_t rows, std::int64_t packs, T* x, const T* bias,
                              const T* residual) {
  HETEROPERF_FOR_MATRIX(row, rows, column, packs) {
    const std::int64_t i = row * packs + column;
    const Pack<T, n> from = load<n>(x, i);
    Acc<T> v[n];
    for (int k = 0; k < n; ++k) v[k] = widen(from.at[k]);
    if (bias != nullptr) {
      const Pack<T, n> b = load<n>(bias, column);
      for (int k = 0; k < n; ++k) v[k] += widen(b.at[k]);
    }
    if (residual != nullptr) {
      const Pack<T, n> more = load<n>(residual, i);
      for (int k = 0; k < n; ++k) v[k] += widen(more.at[k]);
    }
    Pack<T, n> to;
    for (int k = 0; k < n; ++k) to.at[k] = narrow<T>(v[k]);
    keep<n>(x, i, to);
  }
}
template <class T>
void add_bias(RowRange r, void* x, const void* bias, const void* residual) {
  with_packs<T>(
      r.columns,
      [&](auto n) { launch_matrix(add_bias_rows<T, n>, r.end, r.columns / n, x, bias, residual); },
      x, bias, residual);
}

/// Sums of each column over one block of rows.
template <class T>
__global__ void column_sum_tiles(std::int64_t rows, std::int64_t columns,
                                 std::int64_t rows_per_block, const T* x, Acc<T>* sums) {
  const TilePlace at = tile_place(rows, columns, rows_per_block);
  Acc<T> sum = 0;
  for (std::int64_t row = at.first + threadIdx.y; at.inside && row < at.last; row += tile_rows) {
    sum += widen(x[row * columns + at.column]);
  }
  sum = sum_tile(sum);
  if (at.inside && threadIdx.y == 0) sums[blockIdx.y * columns + at.column] = sum;
}
/// A row of partial sums per block of rows.
template <class T>
void column_sum(RowRange r, const void* x, void* partials) {
  launch_tiles(column_sum_tiles<T>, r.end, r.columns, x, partials);
}

/// Joins the sums of all blocks of rows in their order.
template <class T>
__global__ void combine_tiles(std::int64_t columns, std::int64_t blocks, const Acc<T>* partials,
                              Accumulation accumulation, T* target) {
  // The partial sums are a matrix of blocks × columns, summed by one tile per 32 columns.
  const TilePlace at = tile_place(blocks, columns, blocks);
  Acc<T> sum = 0;
  for (std::int64_t block = threadIdx.y; at.inside && block < blocks; block += tile_rows) {
    sum += partials[block * columns + at.column];
  }
  sum = sum_tile(sum);
  if (!at.inside || threadIdx.y != 0) return;
  if (accumulation == Accumulation::add) sum += widen(target[at.column]);
  target[at.column] = narrow<T>(sum);
}
/// One tile of threads per 32 columns, each thread with every eighth block.
template <class T>
void combine(RowRange r, std::int64_t blocks, const void* partials, Accumulation accumulation,
             void* target) {
  if (r.columns == 0) return;
  launch(combine_tiles<T>, over_tiles(r.columns, 1), r.columns, blocks, partials, accumulation,
         target);
}

}  // namespace
}  // namespace heteroperf
