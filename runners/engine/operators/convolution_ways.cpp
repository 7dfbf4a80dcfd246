// The ways of a convolution. LibTorch's own reorders the weights in every call, which costs more
// than the product itself on small images. Ours (own_convolution.cpp) multiplies images and weights
// where they lie. The others gather windows and multiply them as one matrix, as follows.
//
// Gathering writes every window as a row of {kernel height, kernel width, channels}, so that the
// convolution is a product of the rows with the weights, which lie in the same order in memory. A
// 1x1 window of stride 1 needs no gathering at all: the pixels are the rows, and ours takes this
// way too. The batch is cut into blocks of samples, because gathered windows take kernel height ×
// kernel width times the memory of the image. The gradient of the input goes the same way back: a
// product gives the gradient of every window, and scatter() adds them to the pixels. The gradient
// of the weights is summed block by block, in the order of the blocks.
#include "runners/engine/operators/convolution_ways.hpp"

#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>

#include "runners/engine/operators/kernel_launch.hpp"
#include "runners/engine/operators/own_products.hpp"
#include "runners/engine/operators/product.hpp"

namespace heteroperf {
namespace {

// ---------------------------------------------------------------- gathered windows

/// The size of one gathered block of samples.
constexpr std::int64_t gathered_bytes = std::int64_t{8} << 20;

/// A matrix product of the pixels themselves.
bool is_plain(const Window& w) {
  return w.kernel[0] == 1 && w.kernel[1] == 1 && w.stride[0] == 1 && w.stride[1] == 1 &&
         w.padding[0] == 0 && w.padding[1] == 0;
}
std::int64_t window_elements(const Window& w) { return w.kernel[0] * w.kernel[1] * w.channels; }

/// Calls body(first, count) for blocks of samples whose gathered windows stay small. Without
/// windows to gather the whole batch is one block.
template <class Body>
void for_blocks(const at::Tensor& x, const Window& w, const Body& body) {
  const std::int64_t batch = x.size(0);
  const std::int64_t per_sample =
      w.out[0] * w.out[1] * window_elements(w) * static_cast<std::int64_t>(x.element_size());
  const std::int64_t block =
      is_plain(w) ? batch : std::max<std::int64_t>(1, gathered_bytes / per_sample);
  for (std::int64_t first = 0; first < batch; first += block) {
    body(first, std::min(block, batch - first));
  }
}

/// Images {B, C, H, W} as rows of channels, without a copy.
at::Tensor pixels(const at::Tensor& images) {
  return images.permute({0, 2, 3, 1}).view({-1, images.size(1)});
}
/// {out, kh · kw · in}; a copy unless the weight is channels last.
at::Tensor weight_matrix(const at::Tensor& weight) {
  return weight.permute({0, 2, 3, 1}).reshape({weight.size(0), -1});
}

/// Every window as a row.
at::Tensor columns(const at::Tensor& x, const Window& w) {
  if (is_plain(w)) return pixels(x);
  at::Tensor gathered = empty({x.size(0) * w.out[0] * w.out[1], window_elements(w)}, x);
  run_kernel(&KernelTable::im2col, matrix_of(gathered), w, x, gathered);
  return gathered;
}

/// Adds gathered rows to the pixels that they came from.
void scatter(const at::Tensor& gathered, const Window& w, const at::Tensor& dx) {
  const Matrix samples(dx.size(0), w.out[0] * w.out[1] * window_elements(w), dx);
  run_kernel(&KernelTable::col2im, samples, w, gathered, dx);
}

void gathered_forward(ProductWay way, const Window& w, const at::Tensor& x,
                      const at::Tensor& weight, const at::Tensor& y) {
  const at::Tensor matrix = weight_matrix(weight).t();
  for_blocks(x, w, [&](std::int64_t first, std::int64_t count) {
    product_by(way, pixels(y.narrow(0, first, count)), columns(x.narrow(0, first, count), w),
               matrix, Accumulation::overwrite);
  });
}

void gathered_input(ProductWay way, const Window& w, const at::Tensor& dy, const at::Tensor& weight,
                    const at::Tensor& dx) {
  const at::Tensor matrix = weight_matrix(weight);
  for_blocks(dx, w, [&](std::int64_t first, std::int64_t count) {
    const at::Tensor part = dx.narrow(0, first, count);
    const at::Tensor g = pixels(dy.narrow(0, first, count));
    const at::Tensor rows =
        is_plain(w) ? pixels(part) : empty({g.size(0), window_elements(w)}, part);
    product_by(way, rows, g, matrix, Accumulation::overwrite);
    if (!is_plain(w)) scatter(rows, w, part);
  });
}

/// `gradient` is the matrix {out, kh · kw · in}.
void gathered_weight(ProductWay way, const Window& w, const at::Tensor& dy, const at::Tensor& x,
                     const at::Tensor& gradient, Accumulation accumulation) {
  for_blocks(x, w, [&](std::int64_t first, std::int64_t count) {
    product_by(way, gradient, pixels(dy.narrow(0, first, count)).t(),
               columns(x.narrow(0, first, count), w), accumulation);
    // The first block overwrites, if it may; all others add.
    accumulation = Accumulation::add;
  });
}

// ---------------------------------------------------------------- the other ways

/// True where no window is written to memory.
bool is_direct(ProductWay way, const Window& w) { return way == ProductWay::own && !is_plain(w); }

/// Runs a pass of ours, which LibTorch's observers would not see. The weights are channels last.
void direct(ProductKind pass, const Window& w, const at::Tensor& x, const at::Tensor& weight,
            const at::Tensor& y, Accumulation accumulation = Accumulation::overwrite) {
  const CountedCall counted("heteroperf::convolution", {weight, y});
  own_convolution(pass, w, x, weight, y, accumulation);
}

at::Tensor library_gradient(const Convolution& c, const at::Tensor& dy, const at::Tensor& x,
                            const at::Tensor& weight, bool of_input) {
  const Window& w = c.window;
  auto [dx, dw, db] =
      at::convolution_backward(dy, x, weight, at::OptionalIntArrayRef(), w.stride, w.padding,
                               {1, 1}, false, {0, 0}, c.groups, {of_input, !of_input, false});
  return of_input ? dx : dw;
}

}  // namespace

at::Tensor Convolution::forward(ProductWay way, const at::Tensor& x,
                                const at::Tensor& weight) const {
  if (way == ProductWay::libtorch) {
    return canonical(at::convolution(x, weight, std::nullopt, window.stride, window.padding, {1, 1},
                                     false, {0, 0}, groups));
  }
  at::Tensor y =
      empty_images({x.size(0), weight.size(0), window.out[0], window.out[1]}, x, x.scalar_type());
  if (is_direct(way, window)) {
    direct(ProductKind::conv, window, x, weight.contiguous(at::MemoryFormat::ChannelsLast), y);
  } else {
    gathered_forward(way, window, x, weight, y);
  }
  return y;
}

at::Tensor Convolution::input_gradient(ProductWay way, const at::Tensor& dy,
                                       const at::Tensor& weight, const at::Tensor& x) const {
  if (way == ProductWay::libtorch) return library_gradient(*this, dy, x, weight, true);
  at::Tensor dx = uninitialised_like(x);
  if (is_direct(way, window)) {
    direct(ProductKind::conv_input, window, dx, weight.contiguous(at::MemoryFormat::ChannelsLast),
           dy);
  } else {
    gathered_input(way, window, dy, weight, dx);
  }
  return dx;
}

void Convolution::weight_gradient(ProductWay way, const at::Tensor& dy, const at::Tensor& x,
                                  const at::Tensor& gradient, Accumulation accumulation) const {
  if (way == ProductWay::libtorch) {
    // The weight's values do not enter its own gradient, whose tensor stands for its shape and
    // layout. LibTorch wants it of the type of the images.
    const at::Tensor weight = gradient.scalar_type() == dy.scalar_type()
                                  ? gradient
                                  : empty(gradient.sizes(), gradient, dy.scalar_type());
    return accumulate(gradient, library_gradient(*this, dy, x, weight, false), accumulation);
  }
  // The sums are written straight into a buffer of their type and layout.
  const bool in_place = gradient.is_contiguous(at::MemoryFormat::ChannelsLast) &&
                        gradient.scalar_type() == dy.scalar_type();
  const at::Tensor sums =
      in_place
          ? gradient
          : at::empty(gradient.sizes(), dy.options()).contiguous(at::MemoryFormat::ChannelsLast);
  const Accumulation how = in_place ? accumulation : Accumulation::overwrite;
  if (is_direct(way, window)) {
    direct(ProductKind::conv_weight, window, x, sums, dy, how);
  } else {
    gathered_weight(way, window, dy, x, weight_matrix(sums), how);
  }
  if (!in_place) accumulate(gradient, sums, accumulation);
}

}  // namespace heteroperf
