// Convolutions. LibTorch reorders the weights in every call, which costs more than the product
// itself on small images; there the windows are gathered and multiplied as one matrix.
//
// Gathering writes every window as a row of {kernel height, kernel width, channels}, so that the
// convolution is a product of the rows with the weights, which lie in the same order in memory. A
// 1x1 window of stride 1 needs no gathering at all: the pixels are the rows. The batch is cut into
// blocks of samples, because gathered windows take kernel height × kernel width times the memory of
// the image. The gradient of the input goes the same way back: a product gives the gradient of
// every window, and scatter() adds them to the pixels. The gradient of the weights is summed block
// by block, in the order of the blocks.
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>

#include "runners/engine/operators/kernel_launch.hpp"
#include "runners/engine/operators/operator_factories.hpp"
#include "runners/engine/operators/product.hpp"

namespace heteroperf {
namespace {

/// Output positions up to which gathering windows and one matrix product beat LibTorch's
/// convolution (whose weights are reordered in every call): measured with
/// tests/bench/operators_bench, 1.1 to 3 times as fast at 8x8 down to 1x1, 0.8 to 0.9 at 16x16.
constexpr std::int64_t most_gathered_positions = 8 * 8;
/// The size of one gathered block of samples.
constexpr std::int64_t gathered_bytes = std::int64_t{8} << 20;

/// The batch cut into blocks of samples whose gathered windows stay small.
struct SampleBlocks {
  std::int64_t batch, block;
  template <class Body>
  void run(const Body& body) const {
    for (std::int64_t first = 0; first < batch; first += block) {
      body(first, std::min(block, batch - first));
    }
  }
};

/// Cross-correlation of channels-last images. Saves its input.
///
/// Small images and 1x1 windows: windows are gathered ("im2col") and multiplied with {out, kh, kw,
/// in} weights as a matrix; the others take LibTorch's convolution.
class Conv2dOperator final : public Operator {
 public:
  explicit Conv2dOperator(const Conv2d& attributes) : a_(attributes) {}

  at::Tensor forward(const Tensors& inputs, const Tensors& parameters, Tensors& saved,
                     const PassContext&) override {
    const at::Tensor x = canonical(inputs[0]);
    saved = {x};
    const Window window = window_of(x);
    if (!gathers(window, x)) return library_forward(x, parameters);
    at::Tensor y = empty_images({x.size(0), a_.out_channels, window.out[0], window.out[1]}, x,
                                x.scalar_type());
    const at::Tensor weight = as_matrix(parameters[0]).t();
    blocks(x, window).run([&](std::int64_t first, std::int64_t count) {
      product_into(pixels(y.narrow(0, first, count)), columns(x.narrow(0, first, count), window),
                   weight, Accumulation::overwrite);
    });
    if (a_.bias) run_kernel(&KernelTable::add_bias, pixels_of(y), y, parameters[1], nullptr);
    return y;
  }

 private:
  void gradients(const BackwardPass& pass) override {
    const at::Tensor dy = canonical(pass.output_gradient), &x = pass.saved[0];
    const bool input = pass.wants(0);
    Tensors* const parameters = pass.parameter_gradients;
    const Window window = window_of(x);
    if (gathers(window, x)) {
      if (parameters != nullptr) gathered_weight(dy, x, window, pass.context, *parameters);
      if (input) pass.sink->put(0, gathered_input(dy, pass.parameters[0], x, window));
      return;
    }
    if (!input && parameters == nullptr) return;
    // The weight's values do not enter its own gradient, which stands for its shape and layout.
    const at::Tensor weight =
        pass.parameters.empty() ? stand_in((*parameters)[0], dy) : pass.parameters[0];
    Tensors got = library_backward(
        dy, x, weight, {input, parameters != nullptr, parameters != nullptr && a_.bias});
    if (parameters != nullptr) {
      accumulate((*parameters)[0], got[1], pass.context.accumulation);
      if (a_.bias) accumulate((*parameters)[1], got[2], pass.context.accumulation);
    }
    if (input) pass.sink->put(0, std::move(got[0]));
  }

  Window window_of(const at::Tensor& x) const {
    return window_over(a_, x.size(1), x.sizes().slice(2));
  }

  /// Small images and 1x1 windows are gathered; grouped convolutions are LibTorch's.
  bool gathers(const Window& w, const at::Tensor& x) const {
    if (x.is_cuda()) return false;  // cuDNN chooses for itself
    const bool pointwise = w.kernel[0] == 1 && w.kernel[1] == 1;
    return a_.groups == 1 && (pointwise || w.out[0] * w.out[1] <= most_gathered_positions);
  }
  /// A matrix product of the pixels themselves.
  static bool is_plain(const Window& w) {
    return w.kernel[0] == 1 && w.kernel[1] == 1 && w.stride[0] == 1 && w.stride[1] == 1 &&
           w.padding[0] == 0 && w.padding[1] == 0;
  }
  static std::int64_t window_elements(const Window& w) {
    return w.kernel[0] * w.kernel[1] * w.channels;
  }
  /// Without windows to gather the whole batch is one block.
  static SampleBlocks blocks(const at::Tensor& x, const Window& w) {
    const std::int64_t per_sample =
        w.out[0] * w.out[1] * window_elements(w) * static_cast<std::int64_t>(x.element_size());
    const std::int64_t block = std::max<std::int64_t>(1, gathered_bytes / per_sample);
    return {x.size(0), is_plain(w) ? x.size(0) : block};
  }

  /// Images {B, C, H, W} as rows of channels, without a copy.
  static at::Tensor pixels(const at::Tensor& images) {
    return images.permute({0, 2, 3, 1}).view({-1, images.size(1)});
  }
  /// {out, kh · kw · in}; a copy unless the weight is channels last.
  static at::Tensor as_matrix(const at::Tensor& weight) {
    return weight.permute({0, 2, 3, 1}).reshape({weight.size(0), -1});
  }

  /// Every window as a row.
  static at::Tensor columns(const at::Tensor& x, const Window& w) {
    if (is_plain(w)) return pixels(x);
    at::Tensor gathered = empty({x.size(0) * w.out[0] * w.out[1], window_elements(w)}, x);
    run_kernel(&KernelTable::im2col, matrix_of(gathered), w, x, gathered);
    return gathered;
  }

  /// Adds gathered rows to the pixels that they came from.
  static void scatter(const at::Tensor& gathered, const Window& w, const at::Tensor& dx) {
    const Matrix samples(dx.size(0), w.out[0] * w.out[1] * window_elements(w), dx);
    run_kernel(&KernelTable::col2im, samples, w, gathered, dx);
  }

  static at::Tensor gathered_input(const at::Tensor& dy, const at::Tensor& weight,
                                   const at::Tensor& x, const Window& w) {
    at::Tensor dx = uninitialised_like(x);
    const at::Tensor matrix = as_matrix(weight);
    blocks(x, w).run([&](std::int64_t first, std::int64_t count) {
      const at::Tensor part = dx.narrow(0, first, count);
      const at::Tensor g = pixels(dy.narrow(0, first, count));
      if (is_plain(w)) {
        product_into(pixels(part), g, matrix, Accumulation::overwrite);
      } else {
        scatter(product(g, matrix), w, part);
      }
    });
    return dx;
  }

  /// The product is written straight into the buffer where the buffer has the layout of the rows.
  void gathered_weight(const at::Tensor& dy, const at::Tensor& x, const Window& w,
                       const PassContext& context, Tensors& gradients) const {
    const at::Tensor& buffer = gradients[0];
    const bool direct = buffer.is_contiguous(at::MemoryFormat::ChannelsLast);
    const at::Tensor matrix =
        direct ? as_matrix(buffer) : empty({buffer.size(0), window_elements(w)}, buffer);
    Accumulation how = direct ? context.accumulation : Accumulation::overwrite;
    blocks(x, w).run([&](std::int64_t first, std::int64_t count) {
      multiply_into(matrix, pixels(dy.narrow(0, first, count)).t(),
                    columns(x.narrow(0, first, count), w), how);
      // The first block overwrites, if it may; all others add.
      how = Accumulation::add;
    });
    if (!direct) {
      const std::int64_t out = buffer.size(0);
      accumulate(buffer,
                 matrix.view({out, w.kernel[0], w.kernel[1], w.channels}).permute({0, 3, 1, 2}),
                 context.accumulation);
    }
    if (a_.bias) sum_columns_into(dy, pixels_of(dy), gradients[1], context.accumulation);
  }

  at::Tensor library_forward(const at::Tensor& x, const Tensors& parameters) const {
    const auto bias = a_.bias ? std::optional<at::Tensor>(parameters[1]) : std::nullopt;
    return canonical(at::convolution(x, parameters[0], bias, a_.stride, a_.padding, {1, 1}, false,
                                     {0, 0}, a_.groups));
  }

  Tensors library_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight,
                           std::array<bool, 3> wanted) const {
    const std::vector<std::int64_t> bias_sizes{a_.out_channels};
    auto [dx, dw, db] = at::convolution_backward(
        dy, x, weight, a_.bias ? at::OptionalIntArrayRef(bias_sizes) : at::OptionalIntArrayRef(),
        a_.stride, a_.padding, {1, 1}, false, {0, 0}, a_.groups, wanted);
    return {dx, dw, db};
  }

  /// LibTorch wants a weight of the gradient's type.
  static at::Tensor stand_in(const at::Tensor& gradient, const at::Tensor& dy) {
    return gradient.scalar_type() == dy.scalar_type()
               ? gradient
               : empty(gradient.sizes(), gradient, dy.scalar_type());
  }

  Conv2d a_;
};

}  // namespace

OperatorPtr make(const Conv2d& attributes, const OperatorPlace&) {
  return std::make_unique<Conv2dOperator>(attributes);
}

}  // namespace heteroperf
