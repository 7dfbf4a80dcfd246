#pragma once

// Kernels over sequences: tables of tokens and positions, rotation of queries and keys, packing of
// parts side by side, dropout. A thread works on elements of a row or on whole rows.
#include "metrics/base/random.hpp"
#include "runners/engine/kernels/cuda/reductions.cuh"

namespace heteroperf {
namespace {

/// Row i of the output is the table's row of token i, plus its position's row where there is one.
template <class T>
__global__ void embedding_rows(std::int64_t rows, std::int64_t columns, const std::int64_t* indices,
                               const T* table, const T* positions, std::int64_t length, T* y) {
  using A = Acc<T>;
  HETEROPERF_FOR_MATRIX(row, rows, column, columns) {
    const std::int64_t index = indices[row];
    const A token = index < 0 ? A(0) : widen(table[index * columns + column]);
    const A position =
        positions == nullptr ? A(0) : widen(positions[row % length * columns + column]);
    y[row * columns + column] = narrow<T>(token + position);
  }
}
/// Indices below 0 give zeros, plus the position's row where there is one.
template <class T>
void embedding(RowRange r, const std::int64_t* indices, const void* table, const void* positions,
               std::int64_t length, void* y) {
  launch_matrix(embedding_rows<T>, r.end, r.columns, indices, table, positions, length, y);
}

// A block per row: the first row of a token adds up all rows of it, in their order, the others do
// nothing. No two blocks write to one row of the gradient, so no order is left to chance.
template <class T>
__global__ void embedding_gradient_rows(std::int64_t rows, std::int64_t width,
                                        const std::int64_t* indices, const T* dy,
                                        Acc<T>* gradient) {
  HETEROPERF_SHARED unsigned char same[most_threads];
  HETEROPERF_SHARED int seen_before;
  const std::int64_t place = blockIdx.x, index = indices[place];
  if (index < 0) return;
  if (threadIdx.x == 0) seen_before = 0;
  __syncthreads();
  // From the nearest row back: a frequent token is found soon.
  for (std::int64_t last = place; last > 0 && seen_before == 0; last -= blockDim.x) {
    const std::int64_t row = last - 1 - static_cast<std::int64_t>(threadIdx.x);
    const bool repeated = row >= 0 && indices[row] == index;
    __syncthreads();  // all have read seen_before
    if (repeated) seen_before = 1;
    __syncthreads();
  }
  if (seen_before != 0) return;
  for (std::int64_t first = place; first < rows; first += blockDim.x) {
    const std::int64_t row = first + threadIdx.x;
    __syncthreads();  // all are done with the flags before
    same[threadIdx.x] = row < rows && indices[row] == index ? 1 : 0;
    __syncthreads();
    for (unsigned k = 0; k < blockDim.x; ++k) {
      if (same[k] == 0) continue;
      HETEROPERF_FOR_COLUMNS(c, width) {
        gradient[index * width + c] += widen(dy[(first + k) * width + c]);
      }
    }
  }
}
/// Requires a gradient that is already set: rows are added to what is there.
template <class T>
void embedding_backward(RowRange r, std::int64_t rows, std::int64_t width,
                        const std::int64_t* indices, const void* dy, void* gradient) {
  if (rows * r.columns == 0) return;
  launch(embedding_gradient_rows<T>, LaunchShape{static_cast<unsigned>(rows), 1, most_threads, 1},
         rows, width, indices, dy, gradient);
}

/// y = x + a row of the table per position; `length` rows are used in turn.
template <class T>
__global__ void add_table_rows(std::int64_t rows, std::int64_t columns, const T* x, const T* table,
                               std::int64_t length, T* y) {
  HETEROPERF_FOR_MATRIX(row, rows, column, columns) {
    const std::int64_t i = row * columns + column;
    y[i] = narrow<T>(widen(x[i]) + widen(table[row % length * columns + column]));
  }
}
template <class T>
void add_rows(RowRange r, const void* x, const void* rows, std::int64_t length, void* y) {
  launch_matrix(add_table_rows<T>, r.end, r.columns, x, rows, length, y);
}

/// Sums over the batch, for tables that every sequence has added.
template <class T>
__global__ void batch_sums(std::int64_t elements, std::int64_t batch, std::int64_t stride,
                           const T* dy, Accumulation accumulation, Acc<T>* gradient) {
  HETEROPERF_FOR_ITEMS(i, elements) {
    Acc<T> sum = accumulation == Accumulation::add ? gradient[i] : Acc<T>(0);
    for (std::int64_t b = 0; b < batch; ++b) sum += widen(dy[b * stride + i]);
    gradient[i] = sum;
  }
}
/// A thread per element of the table, which adds up the batch in order.
template <class T>
void sum_batch(RowRange r, std::int64_t batch, std::int64_t length, const void* dy,
               Accumulation accumulation, void* gradient) {
  const std::int64_t elements = r.end * r.columns;
  launch_items(batch_sums<T>, elements, batch, length * r.columns, dy, accumulation, gradient);
}

/// Turns pairs of elements of a head by the angle of the row's position.
template <class T>
__global__ void rotary_rows(std::int64_t rows, std::int64_t columns, RotaryLayout layout,
                            const T* x, const Acc<T>* cosine, const Acc<T>* sine, T* y) {
  using A = Acc<T>;
  const std::int64_t half = layout.head_dim / 2, turned = layout.turned * layout.head_dim;
  const A sign = layout.inverse ? A(-1) : A(1);
  HETEROPERF_FOR_MATRIX(row, rows, column, columns) {
    const T* px = x + row * columns;
    T* py = y + row * columns;
    // Heads lie side by side; the values behind the turned heads are copied.
    const std::int64_t within = column % layout.head_dim;
    if (column >= turned) {
      py[column] = px[column];
      // The thread of the first of a pair writes both; that of the second does nothing.
    } else if (within < half) {
      const std::int64_t at = row % layout.length * half + within;
      const A first = widen(px[column]), second = widen(px[column + half]);
      py[column] = narrow<T>(first * cosine[at] - sign * second * sine[at]);
      py[column + half] = narrow<T>(second * cosine[at] + sign * first * sine[at]);
    }
  }
}
template <class T>
void rotary(RowRange r, RotaryLayout layout, const void* x, const void* cosine, const void* sine,
            void* y) {
  launch_matrix(rotary_rows<T>, r.end, r.columns, layout, x, cosine, sine, y);
}

/// Three matrices and their widths, passed to the kernel by value.
template <class T>
struct PackedParts {
  const T* part[3];
  std::int64_t width[3];
};
/// Writes the parts' columns side by side.
template <class T>
__global__ void pack_rows(std::int64_t rows, std::int64_t columns, PackedParts<T> from, T* packed) {
  HETEROPERF_FOR_MATRIX(row, rows, column, columns) {
    std::int64_t within = column;
    int part = 0;
    // Finds the part that the column belongs to.
    while (within >= from.width[part]) within -= from.width[part++];
    packed[row * columns + column] = from.part[part][row * from.width[part] + within];
  }
}
template <class T>
void pack(RowRange r, const std::int64_t* widths, const void* const* parts, void* packed) {
  PackedParts<T> from;
  for (int i = 0; i < 3; ++i) {
    from.part[i] = as<T>(parts[i]);
    from.width[i] = widths[i];
  }
  launch_matrix(pack_rows<T>, r.end, r.columns, from, packed);
}

/// Draws the mask of every pair of elements from its number in the sample, as dropout_kernels.hpp
/// does.
template <class T>
__global__ void dropout_samples(std::int64_t samples, std::int64_t elements, DropoutKey k,
                                std::uint32_t threshold, Acc<T> scale, const T* x, T* y) {
  HETEROPERF_FOR_MATRIX(sample, samples, element, elements) {
    const std::uint64_t key =
        random_bits(k.seed, k.step, k.first_sample + static_cast<std::uint64_t>(sample), k.node);
    const std::uint64_t word = mix64(key ^ static_cast<std::uint64_t>(element / 2));
    // A word serves two elements: the low half the even one, the high half the odd one.
    const auto bits = static_cast<std::uint32_t>(element % 2 == 0 ? word : word >> 32);
    const std::int64_t i = sample * elements + element;
    y[i] = narrow<T>(bits <= threshold ? widen(x[i]) * scale : Acc<T>(0));
  }
}
/// The mask is keyed by sample, so the flat batch is seen as samples × elements.
template <class T>
void dropout(RowRange r, DropoutKey k, const void* x, void* y) {
  const std::int64_t count = r.end * r.columns;
  if (count == 0) return;
  launch_matrix(dropout_samples<T>, count / k.sample_elements, k.sample_elements, k, k.threshold(),
                1.0 / k.keep, x, y);
}

}  // namespace
}  // namespace heteroperf
