// The operator of convolutions: which way each of its passes takes, and the bias. The ways
// themselves are in convolution_ways.cpp.
#include <ATen/ops/index_select.h>

#include "runners/engine/operators/convolution_ways.hpp"
#include "runners/engine/operators/kernel_launch.hpp"
#include "runners/engine/operators/operator_factories.hpp"
#include "runners/engine/operators/product.hpp"

namespace heteroperf {
namespace {

/// For types without a choice: output positions up to which gathering windows and one matrix
/// product beat LibTorch's convolution, 1.1 to 3 times as fast at 8x8 down to 1x1, 0.8 to 0.9 at
/// 16x16 (tests/bench/operators_bench, float32).
constexpr std::int64_t most_gathered_positions = 8 * 8;

/// Cross-correlation of channels-last images. Saves its input.
class Conv2dOperator final : public Operator {
 public:
  explicit Conv2dOperator(const Conv2d& attributes) : a_(attributes) {}

  at::Tensor forward(const Tensors& inputs, const Tensors& parameters, Tensors& saved,
                     const PassContext&) override {
    const at::Tensor x = canonical(inputs[0]);
    saved = {x};
    const Convolution convolution = convolution_of(x);
    const auto way = way_of(ProductKind::conv, convolution, x);
    if (!way) {
      const Window& w = convolution.window;
      return empty_images({x.size(0), a_.out_channels, w.out[0], w.out[1]}, x, x.scalar_type());
    }
    at::Tensor y = convolve(convolution, *way, x, parameters[0]);
    if (a_.bias) {
      run_kernel(&KernelTable::add, pixels_of(y), y, parameters[1], 1, nullptr, false, y);
    }
    return y;
  }

 private:
  void gradients(const BackwardPass& pass) override {
    const at::Tensor dy = canonical(pass.output_gradient), &x = pass.saved[0];
    const Convolution convolution = convolution_of(x);
    if (pass.parameter_gradients != nullptr) {
      const Tensors& buffers = *pass.parameter_gradients;
      const Accumulation how = pass.context.accumulation;
      if (const auto way = way_of(ProductKind::conv_weight, convolution, x)) {
        weight_gradient(convolution, *way, dy, x, buffers[0], how);
      }
      if (a_.bias) sum_columns_into(dy, pixels_of(dy), buffers[1], how);
    }
    if (!pass.wants(0)) return;
    if (const auto way = way_of(ProductKind::conv_input, convolution, x)) {
      pass.sink->put(0, input_gradient(convolution, *way, dy, pass.parameters[0], x));
    }
  }

  // Each pass as the device makes it. Channels or samples, over which a pass sums, change places
  // where the device adds terms in an order of its own.

  static constexpr ProductOperator op = ProductOperator::convolution;
  static bool by_host() { return active_device().makes_as_host(op); }
  /// A convolution in float64 is LibTorch's.
  static ProductWay way_in(const at::Tensor& x, ProductWay way) {
    return x.scalar_type() == at::kDouble ? ProductWay::libtorch : way;
  }
  at::Tensor in_order(const at::Tensor& images, std::int64_t axis) const {
    const auto order = a_.groups == 1 ? active_device().sum_order(images.size(axis)) : std::nullopt;
    return order ? canonical(images.index_select(axis, *order)) : images;
  }

  at::Tensor convolve(const Convolution& c, ProductWay way, const at::Tensor& x,
                      const at::Tensor& weight) const {
    if (by_host()) return c.forward(way, x, weight);
    return device_product(op, x, weight, [&](const at::Tensor& images, const at::Tensor& weights) {
      return c.forward(way_in(images, way), in_order(images, 1), in_order(weights, 1));
    });
  }
  at::Tensor input_gradient(const Convolution& c, ProductWay way, const at::Tensor& dy,
                            const at::Tensor& weight, const at::Tensor& x) const {
    if (by_host()) return c.input_gradient(way, dy, weight, x);
    return device_product(op, dy, weight, [&](const at::Tensor& g, const at::Tensor& weights) {
      return c.input_gradient(way_in(g, way), in_order(g, 1), in_order(weights, 0),
                              x.to(g.options()));
    });
  }
  void weight_gradient(const Convolution& c, ProductWay way, const at::Tensor& dy,
                       const at::Tensor& x, const at::Tensor& gradient, Accumulation how) const {
    if (by_host()) return c.weight_gradient(way, dy, x, gradient, how);
    const at::Tensor made =
        device_product(op, dy, x, [&](const at::Tensor& g, const at::Tensor& images) {
          const at::Tensor sums = empty_images(gradient.sizes(), g, g.scalar_type());
          c.weight_gradient(way_in(g, way), in_order(g, 0), in_order(images, 0), sums,
                            Accumulation::overwrite);
          return sums;
        });
    accumulate(gradient, made, how);
  }

  Convolution convolution_of(const at::Tensor& x) const {
    return {window_over(a_, x.size(1), x.sizes().slice(2)), a_.groups};
  }

  /// Grouped convolutions are LibTorch's, and cuDNN chooses for itself. None: nothing is computed.
  std::optional<ProductWay> way_of(ProductKind pass, const Convolution& c,
                                   const at::Tensor& x) const {
    const Window& w = c.window;
    if (x.is_cuda() || a_.groups != 1) return ProductWay::libtorch;
    if (x.scalar_type() != at::kFloat) {
      const bool one_tap = w.kernel[0] == 1 && w.kernel[1] == 1;
      return one_tap || w.out[0] * w.out[1] <= most_gathered_positions ? ProductWay::mkl
                                                                       : ProductWay::libtorch;
    }
    return chosen_way({pass,
                       {x.size(0), w.channels, w.in[0], w.in[1], a_.out_channels, w.kernel[0],
                        w.kernel[1], w.stride[0], w.stride[1], w.padding[0], w.padding[1]}});
  }

  Conv2d a_;
};

}  // namespace

OperatorPtr make(const Conv2d& attributes, const OperatorPlace&) {
  return std::make_unique<Conv2dOperator>(attributes);
}

}  // namespace heteroperf
