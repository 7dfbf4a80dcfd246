#pragma once

// Windows over channels-last images. A *tap* is an element of a window, by its number. Windows at
// the edge reach into the padding, and sums and maxima visit only the taps inside the image. Every
// kernel is written from the side of its output: an output pixel takes the taps of its window, an
// input pixel the windows that cover it.
#include "runners/engine/kernels/activation_kernels.hpp"
#include "runners/engine/kernels/operands.hpp"

namespace heteroperf {
namespace {

/// Positions [first, last) along one axis: the taps of a window that lie inside the image, or the
/// windows that cover a pixel.
struct AxisSpan {
  std::int64_t first, last;
};
/// The image's position below the first tap of output position `out`, which may lie in the padding.
HETEROPERF_KERNEL std::int64_t origin(const Window& w, int axis, std::int64_t out) {
  return out * w.stride[axis] - w.padding[axis];
}
/// The taps of output position `out`; none where the whole window lies in the padding.
HETEROPERF_KERNEL AxisSpan taps_at(const Window& w, int axis, std::int64_t out) {
  const std::int64_t before = -origin(w, axis, out), inside = w.in[axis] + before;
  const AxisSpan taps{before > 0 ? before : 0, inside < w.kernel[axis] ? inside : w.kernel[axis]};
  return taps.last < taps.first ? AxisSpan{0, 0} : taps;
}
/// A quotient of numbers that are not negative, for the usual strides without a division.
HETEROPERF_KERNEL std::int64_t divided(std::int64_t position, std::int64_t stride) {
  return stride == 1 ? position : stride == 2 ? position / 2 : position / stride;
}
/// From the first window that still reaches the position to the last that begins at or before it.
HETEROPERF_KERNEL AxisSpan windows_over(const Window& w, int axis, std::int64_t in) {
  const std::int64_t reach = in + w.padding[axis], over = reach - w.kernel[axis];
  const std::int64_t first = over < 0 ? 0 : divided(over, w.stride[axis]) + 1;
  const std::int64_t last = divided(reach, w.stride[axis]) + 1;
  return {first, last < w.out[axis] ? last : w.out[axis]};
}

/// A pixel of images of some extents.
struct PixelPlace {
  std::int64_t sample, at[2];
};
HETEROPERF_KERNEL PixelPlace place_of(std::int64_t pixel, const std::int64_t (&extent)[2]) {
  const std::int64_t line = pixel / extent[1];
  return {line / extent[0], {line % extent[0], pixel % extent[1]}};
}
/// The next pixel of the batch, without a division.
HETEROPERF_KERNEL void advance(PixelPlace& pixel, const std::int64_t (&extent)[2]) {
  if (++pixel.at[1] < extent[1]) return;
  pixel.at[1] = 0;
  if (++pixel.at[0] < extent[0]) return;
  pixel.at[0] = 0;
  ++pixel.sample;
}

/// A tap by its number in the window, and whether it is the first that its pixel meets.
struct Tap {
  std::int64_t number;
  bool first;
};
/// Visits the input pixels below an output pixel's window.
struct TapsOfWindow {
  static constexpr bool joins = false;
  Window w;
  HETEROPERF_KERNEL PixelPlace place(std::int64_t pixel) const { return place_of(pixel, w.out); }
  HETEROPERF_KERNEL void next(PixelPlace& pixel) const { advance(pixel, w.out); }
  template <class Visit>
  HETEROPERF_KERNEL void operator()(const PixelPlace& out, const Visit& visit) const {
    const AxisSpan h = taps_at(w, 0, out.at[0]), v = taps_at(w, 1, out.at[1]);
    for (std::int64_t kh = h.first; kh < h.last; ++kh) {
      for (std::int64_t kw = v.first; kw < v.last; ++kw) {
        const std::int64_t line = origin(w, 0, out.at[0]) + kh;
        const std::int64_t column = origin(w, 1, out.at[1]) + kw;
        visit((out.sample * w.in[0] + line) * w.in[1] + column,
              Tap{kh * w.kernel[1] + kw, kh == h.first && kw == v.first});
      }
    }
  }
};
/// Visits the output pixels whose windows cover an input pixel, by the tap with which they do; with
/// `gathered`, the rows that are visited are those of im2col's taps.
template <bool gathered>
struct WindowsOverPixel {
  static constexpr bool joins = false;
  Window w;
  HETEROPERF_KERNEL PixelPlace place(std::int64_t pixel) const { return place_of(pixel, w.in); }
  HETEROPERF_KERNEL void next(PixelPlace& pixel) const { advance(pixel, w.in); }
  template <class Visit>
  HETEROPERF_KERNEL void operator()(const PixelPlace& in, const Visit& visit) const {
    const AxisSpan h = windows_over(w, 0, in.at[0]), v = windows_over(w, 1, in.at[1]);
    for (std::int64_t oh = h.first; oh < h.last; ++oh) {
      for (std::int64_t ow = v.first; ow < v.last; ++ow) {
        const std::int64_t out = (in.sample * w.out[0] + oh) * w.out[1] + ow;
        const std::int64_t tap = (in.at[0] + w.padding[0] - oh * w.stride[0]) * w.kernel[1] +
                                 in.at[1] + w.padding[1] - ow * w.stride[1];
        visit(gathered ? out * w.kernel[0] * w.kernel[1] + tap : out,
              Tap{tap, oh == h.first && ow == v.first});
      }
    }
  }
};
HETEROPERF_KERNEL RowRange pixels_of(RowRange samples, const Window& w) {
  const std::int64_t pixels = w.in[0] * w.in[1];
  return {samples.begin * pixels, samples.end * pixels, w.channels};
}

/// Copies every window into a row of its own; taps outside the image are 0. Those taps of a line of
/// the window that lie inside are in one piece, in the image as in the row.
template <class T>
void im2col(RowRange pixels, const Window& window, const void* x, void* columns) {
  const Window w = window;
  const std::int64_t taps = w.kernel[1] * w.channels;
  const auto body = HETEROPERF_FUNCTION(const Row& row) {
    const PixelPlace out = place_of(row.index, w.out);
    const AxisSpan lines = taps_at(w, 0, out.at[0]), inside = taps_at(w, 1, out.at[1]);
    const std::int64_t line = out.sample * w.in[0] + origin(w, 0, out.at[0]);
    const std::int64_t pixel = line * w.in[1] + origin(w, 1, out.at[1]);
    for (std::int64_t kh = 0; kh < w.kernel[0]; ++kh) {
      const bool padding = kh < lines.first || kh >= lines.last;
      const std::int64_t first = padding ? taps : inside.first * w.channels;
      const std::int64_t last = padding ? taps : inside.last * w.channels;
      const T* const from = as<T>(x) + (pixel + kh * w.in[1]) * w.channels;
      T* const to = row.of(as<T>(columns)) + kh * taps;
      row.each(0, first, [&](std::int64_t c) { to[c] = T(); });
      row.copy(from + first, to + first, last - first);
      row.each(last, taps, [&](std::int64_t c) { to[c] = T(); });
    }
  };
  rows({pixels.begin, pixels.end, w.kernel[0] * taps}, body);
}
/// The opposite direction: a pixel adds up what it has in all windows that cover it.
template <class T>
void col2im(RowRange samples, const Window& w, const void* columns, void* dx) {
  fold(whole_rows(pixels_of(samples, w)), WindowsOverPixel<true>{w}, AddUp(), Unchanged(),
       Read<T>(columns), Absent(), Write<T>(dx));
}

/// Takes the first of equal values, and a NaN over any number.
template <class T>
void max_pool(RowRange pixels, const Window& w, const void* x, void* y, std::uint8_t* taps) {
  using A = Acc<T>;
  const auto take = HETEROPERF_FUNCTION(A v, Nothing, Tap tap, A & best, auto& chosen) {
    const bool larger = tap.first | (v > best) | (v != v);
    best = larger ? v : best;
    if constexpr (std::is_same_v<decltype(chosen), std::uint8_t&>) {
      chosen = larger ? static_cast<std::uint8_t>(tap.number) : chosen;
    }
  };
  where_given(Write<std::uint8_t>(taps), [&](auto numbers) {
    fold(whole_rows({pixels.begin, pixels.end, w.channels}), TapsOfWindow{w}, take, Unchanged(),
         Read<T>(x), Absent(), Write<T>(y), numbers);
  });
}
/// Each output's gradient goes to the element that was largest in its window.
template <class T>
void max_pool_backward(RowRange samples, const Window& w, const void* dy, const std::uint8_t* taps,
                       void* dx) {
  using A = Acc<T>;
  const auto add = HETEROPERF_FUNCTION(A v, std::uint8_t chosen, Tap tap, A & sum) {
    sum += chosen == static_cast<std::uint8_t>(tap.number) ? v : A(0);
  };
  fold(whole_rows(pixels_of(samples, w)), WindowsOverPixel<false>{w}, add, Unchanged(), Read<T>(dy),
       Read<std::uint8_t>(taps), Write<T>(dx));
}

/// The mean over all pixels, per sample and channel.
template <class T>
void mean_rows(RowRange samples, std::int64_t pixels, const void* x, void* y) {
  using A = Acc<T>;
  const auto n = static_cast<A>(pixels);
  const auto finish = HETEROPERF_FUNCTION(A & sum) { sum /= n; };
  fold(whole_rows(samples), EvenWalk{{}, pixels, pixels}, AddUp(), finish, Read<T>(x), Absent(),
       Write<T>(y));
}
/// Gives every pixel its share of the mean's gradient.
template <class T>
void mean_rows_backward(RowRange samples, std::int64_t pixels, const void* dy, void* dx) {
  // A division rounds every result by itself; a rounded share would move all of them alike.
  const auto count = static_cast<Acc<T>>(pixels);
  const auto body = HETEROPERF_FUNCTION(const Row& row) {
    T* const to = as<T>(dx) + row.index * pixels * row.columns;
    const T* const from = row.of(as<T>(dy));
    row.each([&](std::int64_t c) { to[c] = narrow<T>(widen(from[c]) / count); });
    for (std::int64_t done = 1; done < pixels; done *= 2) {
      row.wait();
      const std::int64_t more = done < pixels - done ? done : pixels - done;
      row.copy(to, to + done * row.columns, more * row.columns);
    }
  };
  rows(samples, body);
}

}  // namespace
}  // namespace heteroperf
