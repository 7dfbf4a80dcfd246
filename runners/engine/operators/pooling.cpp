// Pooling over channels-last images.
//
// Max pooling keeps one byte per output element: the number of the window's element that was
// largest. The backward pass sends each gradient there without reading the input again. One byte
// tells 256 elements apart, which bounds the window. The means need nothing saved, since every
// element of a window gets the same share.
#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/avg_pool2d_backward.h>
#include <fmt/format.h>

#include "metrics/base/error.hpp"
#include "runners/engine/operators/kernel_launch.hpp"
#include "runners/engine/operators/unary_operator.hpp"

namespace heteroperf {
namespace {

/// Uninitialised images of a batch.
at::Tensor images_of(std::int64_t batch, const Shape& sample, const at::Tensor& like,
                     at::ScalarType type) {
  std::vector<std::int64_t> sizes{batch};
  sizes.insert(sizes.end(), sample.begin(), sample.end());
  return empty_images(sizes, like, type);
}
at::Tensor images_of(std::int64_t batch, const Shape& sample, const at::Tensor& like) {
  return images_of(batch, sample, like, like.scalar_type());
}

}  // namespace

/// Saves one byte per output element: which element of its window was largest.
OperatorPtr make(const MaxPool& a, const OperatorPlace& place) {
  if (a.kernel[0] * a.kernel[1] > 256) {
    throw UserError(fmt::format("max_pool '{}' has a window of {}x{}", place.node.name, a.kernel[0],
                                a.kernel[1]),
                    "at most 256 elements can be told apart");
  }
  const Shape &input = place.input(), &output = place.node.output;
  const Window window = window_over(a, input[0], at::IntArrayRef(input).slice(1));
  return make_unary(
      [output, window](const at::Tensor& images, Tensors& saved, const PassContext& context) {
        const at::Tensor x = canonical(images);
        at::Tensor y = images_of(x.size(0), output, x), taps;
        if (context.mode == Mode::train) saved = {images_of(x.size(0), output, x, at::kByte)};
        if (!saved.empty()) taps = saved[0];
        run_kernel(&KernelTable::max_pool, pixels_of(y), window, x, y, taps);
        return y;
      },
      [input, window](const at::Tensor& gradient, const Tensors& saved, const PassContext&) {
        const at::Tensor dy = canonical(gradient);
        at::Tensor dx = images_of(dy.size(0), input, dy);
        run_kernel(&KernelTable::max_pool_backward, Matrix(dy.size(0), element_count(input), dy),
                   window, dy, saved[0], dx);
        return dx;
      });
}

/// LibTorch's own kernels. Padding does not count as pixels. Saves nothing.
OperatorPtr make(const AvgPool& a, const OperatorPlace& place) {
  return make_unary(
      [a](const at::Tensor& x, auto&&...) {
        return at::avg_pool2d(canonical(x), a.kernel, a.stride, a.padding, false, false);
      },
      [a, input = place.input()](const at::Tensor& dy, auto&&...) {
        // Only the sizes of the input enter, and its layout.
        return at::avg_pool2d_backward(canonical(dy), images_of(dy.size(0), input, dy), a.kernel,
                                       a.stride, a.padding, false, false, std::nullopt);
      });
}

/// Saves nothing.
OperatorPtr make(const GlobalAvgPool&, const OperatorPlace& place) {
  const Shape& input = place.input();
  const std::int64_t pixels = input[1] * input[2];
  return make_unary(
      [pixels](const at::Tensor& images, auto&&...) {
        const at::Tensor x = canonical(images);
        at::Tensor y = empty({x.size(0), x.size(1)}, x);
        run_kernel(&KernelTable::mean_rows, matrix_of(y), pixels, x, y);
        return y;
      },
      [input, pixels](const at::Tensor& gradient, auto&&...) {
        const at::Tensor dy = gradient.contiguous();
        at::Tensor dx = images_of(dy.size(0), input, dy);
        run_kernel(&KernelTable::mean_rows_backward, matrix_of(dy), pixels, dy, dx);
        return dx;
      });
}

}  // namespace heteroperf
