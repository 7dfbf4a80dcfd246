#pragma once

// Kernels over sequences: tables of tokens and positions, rotation of queries and keys, packing of
// parts side by side, and dropout, whose masks are keyed by sample.
#include "metrics/base/random.hpp"
#include "runners/engine/kernels/activation_kernels.hpp"
#include "runners/engine/kernels/operands.hpp"

namespace heteroperf {
namespace {

/// Row i of the output is the table's row of token i, plus its position's row where there is one.
/// Zeros take the place of the row of a token below 0, one of another rank's part of the
/// vocabulary.
template <class T>
void embedding(RowRange r, const std::int64_t* indices, const void* table, const void* positions,
               std::int64_t length, void* y) {
  const auto f = HETEROPERF_FUNCTION(auto x, std::int64_t token, auto position, auto& to) {
    to = (token < 0 ? decltype(x)(0) : x) + position;
  };
  const auto run = [&](auto element, auto position) {
    using E = decltype(element);
    map<E>(r, f, Operand<const E, IndexedRows>(table, {indices}), PerRow<std::int64_t>(indices),
           position, Write<E>(y));
  };
  // A table's row alone is copied: bits need no rounding.
  if (positions == nullptr) return run(Bits<T>(), Absent());
  run(T(), TableRow<T>(positions, {length}));
}

/// Adds each row's gradient to its token's row, in the order of the rows. The range is of columns,
/// so threads never write to one element. A device with more threads than columns has a form of
/// its own.
#if !defined(HETEROPERF_OWN_EMBEDDING_BACKWARD)
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
#endif

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
    const T* const px = row.of(as<T>(x));
    T* const py = row.of(as<T>(y));
    row.each_of(layout.turned, half, [&](std::int64_t head, std::int64_t i) {
      const std::int64_t at = head * layout.head_dim + i;
      const A first = widen(px[at]), second = widen(px[at + half]);
      const A c = widen(cs[i]), s = widen(sn[i]);
      py[at] = narrow<T>(first * c - sign * second * s);
      py[at + half] = narrow<T>(second * c + sign * first * s);
    });
    row.copy(px + turned, py + turned, row.columns - turned);
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
/// Kept values are divided by the probability of being kept, which leaves the expected value as it
/// was. A row is a part of one sample. A word of bits serves two elements: the low half the even
/// one, the high half the odd one.
template <class T>
void dropout(RowRange r, DropoutKey k, const void* x, void* y) {
  using A = Acc<T>;
  const std::uint32_t threshold = k.threshold();
  const auto scale = static_cast<A>(1.0 / k.keep);
  const auto body = HETEROPERF_FUNCTION(const Row& row) {
    const std::int64_t first = row.index * row.columns % k.sample_elements, odd = first % 2;
    const std::uint64_t key = mask_key(k, row.index * row.columns / k.sample_elements);
    const T* const from = row.of(as<T>(x));
    T* const to = row.of(as<T>(y));
    const auto put = [&](std::int64_t c, std::uint64_t bits) HETEROPERF_INLINED {
      const A kept = widen(from[c]) * scale;  // loaded in any case, which vectors want
      to[c] = narrow<T>(static_cast<std::uint32_t>(bits) <= threshold ? kept : A(0));
    };
    const auto word = [&](std::int64_t pair) HETEROPERF_INLINED {
      return mix64(key ^ static_cast<std::uint64_t>(first / 2 + pair));
    };
    const std::int64_t last = row.columns - 1, pairs = (row.columns - odd) / 2;
    row.each(0, pairs, [&](std::int64_t pair) HETEROPERF_INLINED {
      const std::uint64_t bits = word(odd + pair);
      put(odd + 2 * pair, bits);
      put(odd + 2 * pair + 1, bits >> 32);
    });
    if (row.leads() && odd == 1) put(0, word(0) >> 32);
    if (row.leads() && odd + 2 * pairs == last) put(last, word(odd + pairs));
  };
  rows(r, body);
}

}  // namespace
}  // namespace heteroperf
