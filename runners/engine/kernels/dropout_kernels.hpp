#pragma once

// Dropout with masks that are drawn, not stored.
//
// A counter-based generator gives 64 bits for a key and a number; the key is made of seed, step,
// sample and node, the number is that of a pair of elements in the sample. So an element's bits
// depend on nothing but its name, and any thread, rank or second pass draws the same. Elements are
// taken in blocks, first all bits of a block, then all comparisons, because each of these loops
// becomes vector code.
#include "metrics/base/random.hpp"
#include "runners/engine/kernels/kernel_table.hpp"
#include "runners/engine/kernels/scalar_types.hpp"

namespace heteroperf {
namespace {

constexpr std::int64_t dropout_block = 256;

/// Elements [begin, end) of one sample, both within a block of `dropout_block`. Word i of the
/// counter-based generator serves elements 2i (low half) and 2i + 1 (high half).
template <class T>
HETEROPERF_KERNEL void dropout_run(std::uint64_t key, std::int64_t begin, std::int64_t end,
                                   std::uint32_t threshold, Acc<T> scale, const T* __restrict x,
                                   T* __restrict y) {
  std::uint32_t bits[dropout_block + 2];
  const std::int64_t first_pair = begin / 2, pairs = (end + 1) / 2 - first_pair;
#pragma omp simd
  for (std::int64_t i = 0; i < pairs; ++i) {
    const std::uint64_t word = mix64(key ^ static_cast<std::uint64_t>(first_pair + i));
    bits[2 * i] = static_cast<std::uint32_t>(word);
    bits[2 * i + 1] = static_cast<std::uint32_t>(word >> 32);
  }
  const std::uint32_t* draws = bits + begin % 2;
#pragma omp simd
  for (std::int64_t i = 0; i < end - begin; ++i) {
    const Acc<T> kept = widen(x[begin + i]) * scale;
    y[begin + i] = narrow<T>(draws[i] <= threshold ? kept : Acc<T>(0));
  }
}

/// A range may begin and end within a sample, and each sample has a key of its own, so the range is
/// walked in stretches of one block of one sample. Kept values are divided by the probability of
/// being kept, which leaves the expected value as it was.
template <class T>
void dropout(RowRange elements, DropoutKey k, const void* x, void* y) {
  const std::uint32_t threshold = k.threshold();
  const auto scale = static_cast<Acc<T>>(1.0 / k.keep);
  for (std::int64_t at = elements.begin; at < elements.end;) {
    const std::int64_t sample = at / k.sample_elements, start = sample * k.sample_elements;
    const std::int64_t begin = at - start;
    std::int64_t end = begin + dropout_block;
    end = end < k.sample_elements ? end : k.sample_elements;
    end = end < elements.end - start ? end : elements.end - start;
    const std::uint64_t key =
        random_bits(k.seed, k.step, k.first_sample + static_cast<std::uint64_t>(sample), k.node);
    dropout_run<T>(key, begin, end, threshold, scale, as<T>(x) + start, as<T>(y) + start);
    at = start + end;
  }
}

}  // namespace
}  // namespace heteroperf
