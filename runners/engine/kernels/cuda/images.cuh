#pragma once

// Windows over channels-last images. Every kernel is written from the side of its output: a thread
// owns an element and gathers all that belongs to it, so nothing is added by two threads and no
// order is left to chance.
#include "runners/engine/kernels/cuda/reductions.cuh"
#include "runners/engine/kernels/window_taps.hpp"

namespace heteroperf {
namespace {

/// Output positions [first, last) along one axis whose windows cover input position `in`.
struct CoveringWindows {
  std::int64_t first, last;
};
__device__ inline CoveringWindows windows_over(const Window& w, int axis, std::int64_t in) {
  const std::int64_t reach = in + w.padding[axis], over = reach - w.kernel[axis];
  CoveringWindows windows;
  // The first window that still reaches the position, and the last that begins at or before it.
  windows.first = over < 0 ? 0 : over / w.stride[axis] + 1;
  windows.last = reach / w.stride[axis] + 1;
  if (windows.last > w.out[axis]) windows.last = w.out[axis];
  return windows;
}

/// An element of channels-last images, by its number.
struct ImagePlace {
  std::int64_t batch, height, width, channel;
};
__device__ inline ImagePlace place_of(std::int64_t i, const std::int64_t (&extent)[2],
                                      std::int64_t channels) {
  const std::int64_t pixel = i / channels, line = pixel / extent[1];
  return {line / extent[0], line % extent[0], pixel % extent[1], i % channels};
}

/// Copies every window into a row of its own (im2col); taps outside the image are 0.
template <class T>
__global__ void gather_windows(std::int64_t pixels, std::int64_t elements, Window w, const T* x,
                               T* columns) {
  const std::int64_t line = w.kernel[1] * w.channels, per_sample = w.out[0] * w.out[1];
  HETEROPERF_FOR_MATRIX(pixel, pixels, element, elements) {
    const std::int64_t within = pixel % per_sample;
    const std::int64_t height = within / w.out[1] * w.stride[0] - w.padding[0] + element / line;
    const std::int64_t width =
        within % w.out[1] * w.stride[1] - w.padding[1] + element % line / w.channels;
    // Elements of a window's row come from the padding where it leaves the image.
    const bool inside = height >= 0 && height < w.in[0] && width >= 0 && width < w.in[1];
    columns[pixel * elements + element] =
        inside ? x[input_offset(w, pixel / per_sample, height, width) + element % w.channels]
               : narrow<T>(Acc<T>(0));
  }
}
/// The tensors of a launch are whole: ranges begin at 0 on a device.
template <class T>
void im2col(RowRange pixels, const Window& w, const void* x, void* columns) {
  const std::int64_t elements = w.kernel[0] * w.kernel[1] * w.channels;
  launch_matrix(gather_windows<T>, pixels.end, elements, w, x, columns);
}

/// The opposite direction (col2im): an input element adds up all windows that cover it.
template <class T>
__global__ void add_windows(std::int64_t count, Window w, const T* columns, T* dx) {
  HETEROPERF_FOR_ITEMS(i, count) {
    const ImagePlace at = place_of(i, w.in, w.channels);
    const CoveringWindows h = windows_over(w, 0, at.height), v = windows_over(w, 1, at.width);
    Acc<T> sum = 0;
    for (std::int64_t oh = h.first; oh < h.last; ++oh) {
      for (std::int64_t ow = v.first; ow < v.last; ++ow) {
        const std::int64_t kh = at.height + w.padding[0] - oh * w.stride[0];
        const std::int64_t kw = at.width + w.padding[1] - ow * w.stride[1];
        const std::int64_t pixel = (at.batch * w.out[0] + oh) * w.out[1] + ow;
        const std::int64_t tap = (pixel * w.kernel[0] + kh) * w.kernel[1] + kw;
        sum += widen(columns[tap * w.channels + at.channel]);
      }
    }
    dx[i] = narrow<T>(sum);
  }
}
/// A thread per input element.
template <class T>
void col2im(RowRange samples, const Window& w, const void* columns, void* dx) {
  const std::int64_t count = samples.end * w.in[0] * w.in[1] * w.channels;
  launch_items(add_windows<T>, count, w, columns, dx);
}

// Takes the first of equal values, and a NaN over any number.
template <class T>
__global__ void max_pool_outputs(std::int64_t count, Window w, const T* x, T* y,
                                 std::uint8_t* taps) {
  HETEROPERF_FOR_ITEMS(i, count) {
    const std::int64_t channel = i % w.channels;
    for_pixel(w, i / w.channels, [&](std::int64_t b, Taps h, Taps v) {
      T best = narrow<T>(Acc<T>(0));
      std::uint8_t chosen = 0;
      bool started = false;
      for (std::int64_t kh = h.first; kh < h.last; ++kh) {
        for (std::int64_t kw = v.first; kw < v.last; ++kw) {
          const T value = x[input_offset(w, b, h.origin + kh, v.origin + kw) + channel];
          const Acc<T> wide = widen(value);
          if (started && !(wide > widen(best)) && !(wide != wide)) continue;
          best = value;
          chosen = static_cast<std::uint8_t>(kh * w.kernel[1] + kw);
          started = true;
        }
      }
      y[i] = best;
      if (taps != nullptr) taps[i] = chosen;
    });
  }
}
template <class T>
void max_pool(RowRange pixels, const Window& w, const void* x, void* y, std::uint8_t* taps) {
  const std::int64_t count = pixels.end * w.channels;
  launch_items(max_pool_outputs<T>, count, w, x, y, taps);
}

/// An input element adds up the gradients of the windows whose largest element it was.
template <class T>
__global__ void max_pool_inputs(std::int64_t count, Window w, const T* dy, const std::uint8_t* taps,
                                T* dx) {
  HETEROPERF_FOR_ITEMS(i, count) {
    const ImagePlace at = place_of(i, w.in, w.channels);
    const CoveringWindows h = windows_over(w, 0, at.height), v = windows_over(w, 1, at.width);
    Acc<T> sum = 0;
    for (std::int64_t oh = h.first; oh < h.last; ++oh) {
      for (std::int64_t ow = v.first; ow < v.last; ++ow) {
        const std::int64_t kh = at.height + w.padding[0] - oh * w.stride[0];
        const std::int64_t kw = at.width + w.padding[1] - ow * w.stride[1];
        const std::int64_t out =
            ((at.batch * w.out[0] + oh) * w.out[1] + ow) * w.channels + at.channel;
        if (taps[out] == static_cast<std::uint8_t>(kh * w.kernel[1] + kw)) sum += widen(dy[out]);
      }
    }
    dx[i] = narrow<T>(sum);
  }
}
/// `taps` as max_pool() wrote them.
template <class T>
void max_pool_backward(RowRange samples, const Window& w, const void* dy, const std::uint8_t* taps,
                       void* dx) {
  const std::int64_t count = samples.end * w.in[0] * w.in[1] * w.channels;
  launch_items(max_pool_inputs<T>, count, w, dy, taps, dx);
}

/// The mean over all pixels, per sample and channel.
template <class T>
__global__ void pixel_means(std::int64_t count, std::int64_t channels, std::int64_t pixels,
                            const T* x, T* y) {
  HETEROPERF_FOR_ITEMS(i, count) {
    const T* from = x + i / channels * pixels * channels + i % channels;
    Acc<T> sum = 0;
    for (std::int64_t p = 0; p < pixels; ++p) sum += widen(from[p * channels]);
    y[i] = narrow<T>(sum / static_cast<Acc<T>>(pixels));
  }
}
/// A thread per sample and channel; neighbouring threads read neighbouring channels.
template <class T>
void mean_rows(RowRange samples, std::int64_t pixels, const void* x, void* y) {
  const std::int64_t count = samples.end * samples.columns;
  launch_items(pixel_means<T>, count, samples.columns, pixels, x, y);
}

/// Gives every pixel its share of the mean's gradient.
template <class T>
__global__ void spread_means(std::int64_t rows, std::int64_t channels, std::int64_t pixels,
                             const T* dy, T* dx) {
  const Acc<T> share = Acc<T>(1) / static_cast<Acc<T>>(pixels);
  HETEROPERF_FOR_MATRIX(row, rows, channel, channels) {
    dx[row * channels + channel] = narrow<T>(widen(dy[row / pixels * channels + channel]) * share);
  }
}
template <class T>
void mean_rows_backward(RowRange samples, std::int64_t pixels, const void* dy, void* dx) {
  launch_matrix(spread_means<T>, samples.end * pixels, samples.columns, pixels, dy, dx);
}

}  // namespace
}  // namespace heteroperf
