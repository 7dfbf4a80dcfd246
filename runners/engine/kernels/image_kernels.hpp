#pragma once

// Windows over channels-last images. The innermost loops run over channels, which lie side by side
// in memory.
#include "runners/engine/kernels/kernel_table.hpp"
#include "runners/engine/kernels/scalar_types.hpp"
#include "runners/engine/kernels/window_taps.hpp"

namespace heteroperf {
namespace {

/// Sets elements to 0; a count below 0 is none.
template <class T>
HETEROPERF_KERNEL void clear(T* values, std::int64_t count) {
  __builtin_memset(values, 0, static_cast<std::size_t>(count > 0 ? count : 0) * sizeof(T));
}

/// Copies every window into a row of its own; taps outside the image are 0.
template <class T>
void im2col(RowRange pixels, const Window& w, const void* x, void* columns) {
  const std::int64_t line = w.kernel[1] * w.channels;
  for (std::int64_t pixel = pixels.begin; pixel < pixels.end; ++pixel) {
    T* out = as<T>(columns) + pixel * w.kernel[0] * line;
    for_pixel(
        w, pixel, [&](std::int64_t b, Taps h, Taps v) __attribute__((always_inline)) {
          clear(out, h.first * line);
          for (std::int64_t kh = h.first; kh < h.last; ++kh) {
            T* row = out + kh * line;
            clear(row, v.first * w.channels);
            if (v.first < v.last) {
              const T* from = as<T>(x) + input_offset(w, b, h.origin + kh, v.origin + v.first);
              __builtin_memcpy(
                  row + v.first * w.channels, from,
                  static_cast<std::size_t>((v.last - v.first) * w.channels) * sizeof(T));
            }
            clear(row + v.last * w.channels, line - v.last * w.channels);
          }
          clear(out + h.last * line, (w.kernel[0] - h.last) * line);
        });
  }
}

/// The opposite direction: every window's row is added to the pixels it was taken from.
template <class T>
void col2im(RowRange samples, const Window& w, const void* columns, void* dx) {
  const std::int64_t line = w.kernel[1] * w.channels, per_sample = w.out[0] * w.out[1];
  const std::int64_t image = w.in[0] * w.in[1] * w.channels;
  clear(as<T>(dx) + samples.begin * image, (samples.end - samples.begin) * image);
  for (std::int64_t pixel = samples.begin * per_sample; pixel < samples.end * per_sample; ++pixel) {
    const T* in = as<T>(columns) + pixel * w.kernel[0] * line;
    for_pixel(
        w, pixel, [&](std::int64_t b, Taps h, Taps v) __attribute__((always_inline)) {
          if (v.first == v.last) return;
          for (std::int64_t kh = h.first; kh < h.last; ++kh) {
            const T* __restrict from = in + kh * line + v.first * w.channels;
            T* __restrict to = as<T>(dx) + input_offset(w, b, h.origin + kh, v.origin + v.first);
#pragma omp simd
            for (std::int64_t c = 0; c < (v.last - v.first) * w.channels; ++c) {
              to[c] = narrow<T>(widen(to[c]) + widen(from[c]));
            }
          }
        });
  }
}

/// Takes the first of equal values, and a NaN over any number.
template <class T>
HETEROPERF_KERNEL void take_larger(const T* __restrict x, std::uint8_t tap, std::int64_t channels,
                                   T* __restrict best, std::uint8_t* __restrict best_tap) {
#pragma omp simd
  for (std::int64_t c = 0; c < channels; ++c) {
    const Acc<T> v = widen(x[c]);
    const bool larger = (v > widen(best[c])) | (v != v);
    best[c] = larger ? x[c] : best[c];
    best_tap[c] = larger ? tap : best_tap[c];
  }
}

/// The first tap inside the image starts the maximum, so no value below all others is needed.
template <class T>
void max_pool(RowRange pixels, const Window& w, const void* x, void* y, std::uint8_t* taps) {
  // Channels are taken in chunks, so that the numbers of the taps fit on the stack.
  constexpr std::int64_t chunk = 256;
  std::uint8_t chosen[chunk];
  for (std::int64_t pixel = pixels.begin; pixel < pixels.end; ++pixel) {
    for_pixel(
        w, pixel, [&](std::int64_t b, Taps h, Taps v) __attribute__((always_inline)) {
          for (std::int64_t first = 0; first < w.channels; first += chunk) {
            const std::int64_t count = w.channels - first < chunk ? w.channels - first : chunk;
            T* best = as<T>(y) + pixel * w.channels + first;
            bool started = false;
            for (std::int64_t kh = h.first; kh < h.last; ++kh) {
              for (std::int64_t kw = v.first; kw < v.last; ++kw) {
                const T* from = as<T>(x) + input_offset(w, b, h.origin + kh, v.origin + kw) + first;
                const auto tap = static_cast<std::uint8_t>(kh * w.kernel[1] + kw);
                if (started) {
                  take_larger(from, tap, count, best, chosen);
                  continue;
                }
                for (std::int64_t c = 0; c < count; ++c) best[c] = from[c];
                __builtin_memset(chosen, tap, count);
                started = true;
              }
            }
            if (taps != nullptr) {
              __builtin_memcpy(taps + pixel * w.channels + first, chosen,
                               static_cast<std::size_t>(count));
            }
          }
        });
  }
}

/// Each output's gradient goes to the element that was largest in its window.
template <class T>
void max_pool_backward(RowRange samples, const Window& w, const void* dy, const std::uint8_t* taps,
                       void* dx) {
  const std::int64_t per_sample = w.out[0] * w.out[1], n = w.channels;
  const std::int64_t image = w.in[0] * w.in[1] * n;
  clear(as<T>(dx) + samples.begin * image, (samples.end - samples.begin) * image);
  for (std::int64_t pixel = samples.begin * per_sample; pixel < samples.end * per_sample; ++pixel) {
    const T* __restrict g = as<T>(dy) + pixel * n;
    const std::uint8_t* __restrict chosen = taps + pixel * n;
    for_pixel(
        w, pixel, [&](std::int64_t b, Taps h, Taps v) __attribute__((always_inline)) {
          for (std::int64_t kh = h.first; kh < h.last; ++kh) {
            for (std::int64_t kw = v.first; kw < v.last; ++kw) {
              T* __restrict to = as<T>(dx) + input_offset(w, b, h.origin + kh, v.origin + kw);
              const auto tap = static_cast<std::uint8_t>(kh * w.kernel[1] + kw);
#pragma omp simd
              for (std::int64_t c = 0; c < n; ++c) {
                const Acc<T> share = chosen[c] == tap ? widen(g[c]) : Acc<T>(0);
                to[c] = narrow<T>(widen(to[c]) + share);
              }
            }
          }
        });
  }
}

/// The mean over all pixels, per sample and channel.
template <class T>
void mean_rows(RowRange samples, std::int64_t pixels, const void* x, void* y) {
  using A = Acc<T>;
  constexpr std::int64_t chunk = 256;
  A sum[chunk];
  for (std::int64_t b = samples.begin; b < samples.end; ++b) {
    for (std::int64_t first = 0; first < samples.columns; first += chunk) {
      const std::int64_t rest = samples.columns - first, count = rest < chunk ? rest : chunk;
      for (std::int64_t c = 0; c < count; ++c) sum[c] = A(0);
      for (std::int64_t p = 0; p < pixels; ++p) {
        const T* __restrict from = as<T>(x) + (b * pixels + p) * samples.columns + first;
#pragma omp simd
        for (std::int64_t c = 0; c < count; ++c) sum[c] += widen(from[c]);
      }
      T* __restrict to = as<T>(y) + b * samples.columns + first;
      for (std::int64_t c = 0; c < count; ++c) to[c] = narrow<T>(sum[c] / static_cast<A>(pixels));
    }
  }
}

/// Gives every pixel its share of the mean's gradient.
template <class T>
void mean_rows_backward(RowRange samples, std::int64_t pixels, const void* dy, void* dx) {
  using A = Acc<T>;
  const A share = A(1) / static_cast<A>(pixels);
  for (std::int64_t b = samples.begin; b < samples.end; ++b) {
    const T* __restrict g = as<T>(dy) + b * samples.columns;
    for (std::int64_t p = 0; p < pixels; ++p) {
      T* __restrict to = as<T>(dx) + (b * pixels + p) * samples.columns;
#pragma omp simd
      for (std::int64_t c = 0; c < samples.columns; ++c) to[c] = narrow<T>(widen(g[c]) * share);
    }
  }
}

}  // namespace
}  // namespace heteroperf
