#pragma once

// The geometry of windows, for the kernels of the host and of a device alike.
//
// A *tap* is an element of a window, by its number along an axis. Windows at the edge reach into
// the padding; only the taps inside the image are visited, so the inner loops need no test.
#include "runners/engine/kernels/kernel_table.hpp"
#include "runners/engine/kernels/scalar_types.hpp"

namespace heteroperf {
namespace {

/// Taps [first, last) of a window that lie inside the image along one axis.
struct Taps {
  std::int64_t origin = 0, first = 0, last = 0;
};

/// The taps of output position `out` along an axis; an empty range where the whole window lies in
/// the padding.
HETEROPERF_KERNEL Taps taps_at(const Window& w, int axis, std::int64_t out) {
  Taps taps;
  taps.origin = out * w.stride[axis] - w.padding[axis];
  taps.first = taps.origin < 0 ? -taps.origin : 0;
  const std::int64_t inside = w.in[axis] - taps.origin;
  taps.last = inside < w.kernel[axis] ? inside : w.kernel[axis];
  if (taps.last < taps.first) taps.last = taps.first = 0;
  return taps;
}

/// Calls body(batch, taps along height, taps along width) for an output pixel.
template <class Body>
HETEROPERF_KERNEL void for_pixel(const Window& w, std::int64_t pixel, Body body) {
  const std::int64_t per_sample = w.out[0] * w.out[1], within = pixel % per_sample;
  body(pixel / per_sample, taps_at(w, 0, within / w.out[1]), taps_at(w, 1, within % w.out[1]));
}

/// Offset of input element (batch, height, width, 0).
HETEROPERF_KERNEL std::int64_t input_offset(const Window& w, std::int64_t batch,
                                            std::int64_t height, std::int64_t width) {
  return ((batch * w.in[0] + height) * w.in[1] + width) * w.channels;
}

}  // namespace
}  // namespace heteroperf
