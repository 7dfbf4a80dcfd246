#pragma once

// The host's exceptions: kernels that are faster here in a form of their own than as a skeleton
// makes them of their description, and the share of their speed that the description has (one
// thread, operands in a cache).
#include "runners/engine/kernels/image_kernels.hpp"
#include "runners/engine/kernels/sequence_kernels.hpp"
#include "runners/engine/kernels/update_kernels.hpp"

namespace heteroperf {
namespace {

/// Description: .49. Elements are taken in blocks, first all bits of a block, then all comparisons,
/// because each of these loops becomes vector code. A range may begin and end within a sample, and
/// each sample has a key of its own, so the range is walked in stretches of one block of one
/// sample.
template <class T>
void host_dropout(RowRange elements, DropoutKey k, const void* x, void* y) {
  constexpr std::int64_t block = 256;
  const std::uint32_t threshold = k.threshold();
  const auto scale = static_cast<Acc<T>>(1.0 / k.keep);
  for (std::int64_t at = elements.begin; at < elements.end;) {
    const std::int64_t sample = at / k.sample_elements, start = sample * k.sample_elements;
    const std::int64_t begin = at - start, rest = k.sample_elements - begin;
    std::int64_t count = rest < block ? rest : block;
    count = count < elements.end - at ? count : elements.end - at;
    const std::uint64_t key = mask_key(k, sample);
    std::uint32_t bits[block + 2];
    const std::int64_t first_pair = begin / 2, pairs = (begin + count + 1) / 2 - first_pair;
#pragma omp simd
    for (std::int64_t i = 0; i < pairs; ++i) {
      const std::uint64_t word = mix64(key ^ static_cast<std::uint64_t>(first_pair + i));
      bits[2 * i] = static_cast<std::uint32_t>(word);
      bits[2 * i + 1] = static_cast<std::uint32_t>(word >> 32);
    }
    const std::uint32_t* const draws = bits + begin % 2;
    const T* const from = as<T>(x) + at;
    T* const to = as<T>(y) + at;
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) {
      const Acc<T> kept = widen(from[i]) * scale;
      to[i] = narrow<T>(draws[i] <= threshold ? kept : Acc<T>(0));
    }
    at += count;
  }
}

/// Description: .06 of windows over three channels. Neighbouring taps of a window's row are copied
/// in one piece.
template <class T>
void host_im2col(RowRange pixels, const Window& w, const void* x, void* columns) {
  const std::int64_t line = w.kernel[1] * w.channels;
  const auto clear = [](T* values, std::int64_t count) HETEROPERF_INLINED {
    if (count > 0) __builtin_memset(values, 0, static_cast<std::size_t>(count) * sizeof(T));
  };
  for (std::int64_t pixel = pixels.begin; pixel < pixels.end; ++pixel) {
    T* const out = as<T>(columns) + pixel * w.kernel[0] * line;
    const PixelPlace at = place_of(pixel, w.out);
    const AxisSpan h = taps_at(w, 0, at.at[0]), v = taps_at(w, 1, at.at[1]);
    const std::int64_t first_line = at.at[0] * w.stride[0] - w.padding[0];
    const std::int64_t first_column = at.at[1] * w.stride[1] - w.padding[1] + v.first;
    clear(out, h.first * line);
    for (std::int64_t kh = h.first; kh < h.last; ++kh) {
      T* const row = out + kh * line;
      const std::int64_t from = (at.sample * w.in[0] + first_line + kh) * w.in[1] + first_column;
      clear(row, v.first * w.channels);
      if (v.first < v.last) {
        __builtin_memcpy(row + v.first * w.channels, as<T>(x) + from * w.channels,
                         static_cast<std::size_t>((v.last - v.first) * w.channels) * sizeof(T));
      }
      clear(row + v.last * w.channels, line - v.last * w.channels);
    }
    clear(out + h.last * line, (w.kernel[0] - h.last) * line);
  }
}

/// The description's order depends on the vectors' width. Sixteen partial sums let the loop use
/// vector registers in one order for all instruction sets.
template <class T>
void host_square_sums(RowRange blocks, std::int64_t count, const void* x, double* sums) {
  constexpr std::int64_t lanes = 16;
  for (std::int64_t block = blocks.begin; block < blocks.end; ++block) {
    const T* const values = as<T>(x) + block * blocks.columns;
    const std::int64_t rest = count - block * blocks.columns;
    const std::int64_t n = rest < blocks.columns ? rest : blocks.columns;
    double partial[lanes] = {}, total = 0;
    const auto square = [&](std::int64_t i) HETEROPERF_INLINED {
      const auto v = static_cast<double>(widen(values[i]));
      return v * v;
    };
    std::int64_t i = 0;
    for (; i + lanes <= n; i += lanes) {
      for (std::int64_t lane = 0; lane < lanes; ++lane) partial[lane] += square(i + lane);
    }
    for (; i < n; ++i) partial[0] += square(i);
    for (const double sum : partial) total += sum;
    sums[block] = total;
  }
}

template <class T>
constexpr KernelTable with_host_forms(KernelTable table) {
  table.dropout = host_dropout<T>;
  table.im2col = host_im2col<T>;
  table.square_sums = host_square_sums<T>;
  return table;
}

}  // namespace
}  // namespace heteroperf
