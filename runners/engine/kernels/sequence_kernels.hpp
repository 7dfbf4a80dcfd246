#pragma once

// Kernels over sequences: tables of tokens and positions, rotation of queries and keys, packing of
// parts side by side.
#include "runners/engine/kernels/kernel_table.hpp"
#include "runners/engine/kernels/scalar_types.hpp"

namespace heteroperf {
namespace {

template <class T>
HETEROPERF_KERNEL void sum_row(const T* __restrict a, const T* __restrict b, T* __restrict y,
                               std::int64_t n) {
#pragma omp simd
  for (std::int64_t c = 0; c < n; ++c) y[c] = narrow<T>(widen(a[c]) + widen(b[c]));
}

/// The builtin keeps library templates out of a file that is compiled for several instruction sets.
template <class T>
HETEROPERF_KERNEL void copy_row(const T* __restrict a, T* __restrict y, std::int64_t n) {
  __builtin_memcpy(y, a, n * sizeof(T));
}

/// Row i of the output is the table's row of token i, plus its position's row where there is one.
template <class T>
void embedding(RowRange r, const std::int64_t* indices, const void* table, const void* positions,
               std::int64_t length, void* y) {
  const std::int64_t n = r.columns;
  for (std::int64_t row = r.begin; row < r.end; ++row) {
    const T* token = as<T>(table) + indices[row] * n;
    const T* position = positions == nullptr ? nullptr : as<T>(positions) + row % length * n;
    T* out = as<T>(y) + row * n;
    // A token of another rank's part of the vocabulary.
    if (indices[row] < 0) {
      if (position == nullptr) {
        __builtin_memset(out, 0, n * sizeof(T));
      } else {
        copy_row(position, out, n);
      }
    } else if (position == nullptr) {
      copy_row(token, out, n);
    } else {
      sum_row(token, position, out, n);
    }
  }
}

/// Adds each row's gradient to its token's row, in the order of the rows. The range is of columns.
template <class T>
void embedding_backward(RowRange r, std::int64_t rows, std::int64_t width,
                        const std::int64_t* indices, const void* dy, void* gradient) {
  // All rows in order: the range is of columns, so threads never write to one element.
  for (std::int64_t row = 0; row < rows; ++row) {
    if (indices[row] < 0) continue;
    const T* __restrict g = as<T>(dy) + row * width;
    Acc<T>* __restrict out = as<Acc<T>>(gradient) + indices[row] * width;
#pragma omp simd
    for (std::int64_t c = r.begin; c < r.end; ++c) out[c] += widen(g[c]);
  }
}

/// y = x + a row of the table per position; `length` rows are used in turn.
template <class T>
void add_rows(RowRange r, const void* x, const void* rows, std::int64_t length, void* y) {
  const std::int64_t n = r.columns;
  for (std::int64_t row = r.begin; row < r.end; ++row) {
    sum_row(as<T>(x) + row * n, as<T>(rows) + row % length * n, as<T>(y) + row * n, n);
  }
}

/// Sums over the batch, for tables that every sequence has added.
template <class T>
void sum_batch(RowRange r, std::int64_t batch, std::int64_t length, const void* dy,
               Accumulation accumulation, void* gradient) {
  const std::int64_t n = r.columns;
  for (std::int64_t row = r.begin; row < r.end; ++row) {
    Acc<T>* __restrict out = as<Acc<T>>(gradient) + row * n;
    if (accumulation == Accumulation::overwrite) {
      for (std::int64_t c = 0; c < n; ++c) out[c] = 0;
    }
    for (std::int64_t b = 0; b < batch; ++b) {
      const T* __restrict g = as<T>(dy) + (b * length + row) * n;
#pragma omp simd
      for (std::int64_t c = 0; c < n; ++c) out[c] += widen(g[c]);
    }
  }
}

/// Turns pairs of elements of a head by the angle of the row's position.
template <class T>
void rotary(RowRange r, RotaryLayout layout, const void* x, const void* cosine, const void* sine,
            void* y) {
  using A = Acc<T>;
  const std::int64_t half = layout.head_dim / 2, turned = layout.turned * layout.head_dim;
  // The gradient turns by the opposite angle.
  const A sign = layout.inverse ? A(-1) : A(1);
  for (std::int64_t row = r.begin; row < r.end; ++row) {
    const A* __restrict cs = as<A>(cosine) + row % layout.length * half;
    const A* __restrict sn = as<A>(sine) + row % layout.length * half;
    for (std::int64_t head = 0; head < layout.turned; ++head) {
      const T* __restrict px = as<T>(x) + row * r.columns + head * layout.head_dim;
      T* __restrict py = as<T>(y) + row * r.columns + head * layout.head_dim;
#pragma omp simd
      for (std::int64_t i = 0; i < half; ++i) {
        const A first = widen(px[i]), second = widen(px[i + half]);
        py[i] = narrow<T>(first * cs[i] - sign * second * sn[i]);
        py[i + half] = narrow<T>(second * cs[i] + sign * first * sn[i]);
      }
    }
    copy_row(as<T>(x) + row * r.columns + turned, as<T>(y) + row * r.columns + turned,
             r.columns - turned);
  }
}

/// Writes the parts' columns side by side.
template <class T>
void pack(RowRange r, const std::int64_t* widths, const void* const* parts, void* packed) {
  for (std::int64_t row = r.begin; row < r.end; ++row) {
    T* out = as<T>(packed) + row * r.columns;
    for (int part = 0; part < 3; ++part) {
      copy_row(as<T>(parts[part]) + row * widths[part], out, widths[part]);
      out += widths[part];
    }
  }
}

}  // namespace
}  // namespace heteroperf
