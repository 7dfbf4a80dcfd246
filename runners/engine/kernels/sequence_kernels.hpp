#pragma once

// Kernels over sequences: tables of tokens and positions, rotation of queries and keys, packing of
// parts side by side, and dropout, whose masks are keyed by sample.
#include "metrics/base/random.hpp"
#include "runners/engine/kernels/activation_kernels.hpp"
#include "runners/engine/kernels/operands.hpp"

namespace heteroperf {
namespace {

/// The table's row that an index names, or zeros for one below 0: a token of another rank's part of
/// the vocabulary.
template <class T>
struct IndexedRow : MemoryOperand<const T, false> {
  const std::int64_t* indices;
  HETEROPERF_KERNEL IndexedRow(const void* table, const std::int64_t* rows)
      : IndexedRow::MemoryOperand(as<T>(table)), indices(rows) {}
  struct View {
    const T* at;
    bool given;
    HETEROPERF_KERNEL auto load(std::int64_t column) const {
      const auto value = widen(at[column]);
      return given ? value : Acc<T>(0);
    }
    template <class V>
    HETEROPERF_KERNEL void store(std::int64_t, const V&) const {}
  };
  HETEROPERF_KERNEL View row(std::int64_t r, std::int64_t columns) const {
    const std::int64_t index = indices[r];
    return {this->at + (index < 0 ? 0 : index) * columns, index >= 0};
  }
};

/// Row i of the output is the table's row of token i, plus its position's row where there is one.
struct AddRow {
  template <class A, class More>
  HETEROPERF_KERNEL void operator()(A x, More more, A& y) const {
    y = plus(x, more);
  }
};
template <class T>
void embedding(RowRange r, const std::int64_t* indices, const void* table, const void* positions,
               std::int64_t length, void* y) {
  where_given(TableRow<T>(positions, length), [&](auto position) {
    map<T>(r, AddRow(), IndexedRow<T>(table, indices), position, Write<T>(y));
  });
}

/// Adds each row's gradient to its token's row, in the order of the rows. The range is of columns,
/// so threads never write to one element. A device with more threads than columns needs a form of
/// its own.
template <class T>
void embedding_backward(RowRange r, std::int64_t rows, std::int64_t width,
                        const std::int64_t* indices, const void* dy, void* gradient) {
  for (std::int64_t row = 0; row < rows; ++row) {
    if (indices[row] < 0) continue;
    const T* __restrict g = as<T>(dy) + row * width;
    Kept<T>* __restrict out = as<Kept<T>>(gradient) + indices[row] * width;
#pragma omp simd
    for (std::int64_t c = r.begin; c < r.end; ++c) out[c] += static_cast<Kept<T>>(widen(g[c]));
  }
}

/// y = x + a row of the table per position; `length` rows are used in turn.
template <class T>
void add_rows(RowRange r, const void* x, const void* table, std::int64_t length, void* y) {
  map<T>(r, AddRow(), Read<T>(x), TableRow<T>(table, length), Write<T>(y));
}

/// Sums over the batch, for tables that every sequence has added.
template <class T>
void sum_batch(RowRange r, std::int64_t batch, std::int64_t length, const void* dy,
               Accumulation accumulation, void* gradient) {
  const auto run = [&](auto result) {
    fold(whole_rows(r), EvenWalk{{}, batch, 1, length}, AddUp(), Unchanged(), Read<T>(dy), Absent(),
         result);
  };
  accumulation == Accumulation::add ? run(Update<Kept<T>>(gradient))
                                    : run(Write<Kept<T>>(gradient));
}

/// Turns pairs of elements of a head by the angle of the row's position.
template <class T>
void rotary(RowRange r, RotaryLayout layout, const void* x, const void* cosine, const void* sine,
            void* y) {
  using A = Acc<T>;
  const std::int64_t half = layout.head_dim / 2, turned = layout.turned * layout.head_dim;
  // The gradient turns by the opposite angle.
  const A sign = layout.inverse ? A(-1) : A(1);
  const auto body = HETEROPERF_FUNCTION(const Row& row) {
    const Kept<T>* const cs = as<Kept<T>>(cosine) + row.index % layout.length * half;
    const Kept<T>* const sn = as<Kept<T>>(sine) + row.index % layout.length * half;
    const T* const px = as<T>(x) + row.index * row.columns;
    T* const py = as<T>(y) + row.index * row.columns;
    row.each(layout.turned, half, [&](std::int64_t head, std::int64_t i) {
      const std::int64_t at = head * layout.head_dim + i;
      const A first = widen(px[at]), second = widen(px[at + half]);
      const A c = widen(cs[i]), s = widen(sn[i]);
      py[at] = narrow<T>(first * c - sign * second * s);
      py[at + half] = narrow<T>(second * c + sign * first * s);
    });
    row.each(1, row.columns - turned,
             [&](std::int64_t, std::int64_t c) { py[turned + c] = px[turned + c]; });
  };
  rows(r, body);
}

/// Writes the parts' columns side by side.
template <class T>
void pack(RowRange r, const std::int64_t* widths, const void* const* parts, void* packed) {
  const T* const from[3] = {as<T>(parts[0]), as<T>(parts[1]), as<T>(parts[2])};
  const std::int64_t width_of[3] = {widths[0], widths[1], widths[2]};
  const auto body = HETEROPERF_FUNCTION(const Row& row) {
    T* out = as<T>(packed) + row.index * row.columns;
    for (int part = 0; part < 3; ++part) {
      const std::int64_t width = width_of[part];
      const T* const in = from[part] + row.index * width;
      row.each(1, width, [&](std::int64_t, std::int64_t c) { out[c] = in[c]; });
      out += width;
    }
  };
  rows(r, body);
}

// ---------------------------------------------------------------- dropout

/// The key of a sample's bits. A counter-based generator gives 64 bits for a key and a number; the
/// key is made of seed, step, sample and node, the number is that of a pair of elements in the
/// sample. So an element's bits depend on nothing but its name, and any thread, rank or second pass
/// draws the same. Masks are drawn, not stored.
HETEROPERF_KERNEL std::uint64_t mask_key(const DropoutKey& k, std::int64_t sample) {
  return random_bits(k.seed, k.step, k.first_sample + static_cast<std::uint64_t>(sample), k.node);
}
/// The draw of an element of the flat batch. A word serves two elements: the low half the even one,
/// the high half the odd one.
struct DrawnBits : Operand<true> {
  DropoutKey key;
  std::int64_t first = 0;
  HETEROPERF_KERNEL explicit DrawnBits(const DropoutKey& k) : key(k) {}
  HETEROPERF_KERNEL DrawnBits row(std::int64_t r, std::int64_t columns) const {
    DrawnBits from = *this;
    from.first = r * columns;
    return from;
  }
  HETEROPERF_KERNEL std::uint32_t load(std::int64_t column) const {
    const std::int64_t i = first + column, element = i % key.sample_elements;
    const std::uint64_t of_sample = mask_key(key, i / key.sample_elements);
    const std::uint64_t word = mix64(of_sample ^ static_cast<std::uint64_t>(element / 2));
    return static_cast<std::uint32_t>(element % 2 == 0 ? word : word >> 32);
  }
  template <class V>
  HETEROPERF_KERNEL void store(std::int64_t, const V&) const {}
};
/// Kept values are divided by the probability of being kept, which leaves the expected value as it
/// was.
template <class T>
void dropout(RowRange elements, DropoutKey k, const void* x, void* y) {
  using A = Acc<T>;
  const std::uint32_t threshold = k.threshold();
  const auto scale = static_cast<A>(1.0 / k.keep);
  const auto f = HETEROPERF_FUNCTION(std::uint32_t bits, A v, A & to) {
    to = bits <= threshold ? v * scale : A(0);
  };
  map<T>(elements, f, DrawnBits(k), Read<T>(x), Write<T>(y));
}

}  // namespace
}  // namespace heteroperf
