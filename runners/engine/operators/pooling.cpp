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
#include "runners/engine/operators/operator_factories.hpp"

namespace heteroperf {
namespace {

std::vector<std::int64_t> batched(std::int64_t batch, const Shape& sample) {
  std::vector<std::int64_t> sizes{batch};
  sizes.insert(sizes.end(), sample.begin(), sample.end());
  return sizes;
}

/// Saves one byte per output element: which element of its window was largest.
class MaxPoolOperator final : public Operator {
 public:
  MaxPoolOperator(const MaxPool& a, Shape input)
      : input_(std::move(input)),
        window_(window_over(a, input_[0], at::IntArrayRef(input_).slice(1))) {}

  at::Tensor forward(const Tensors& inputs, const Tensors&, Tensors& saved,
                     const PassContext& context) override {
    const at::Tensor x = canonical(inputs[0]);
    const std::vector<std::int64_t> sizes =
        batched(x.size(0), {input_[0], window_.out[0], window_.out[1]});
    at::Tensor y = empty_images(sizes, x, x.scalar_type());
    saved.clear();
    if (context.mode == Mode::train) saved = {empty_images(sizes, x, at::kByte)};
    auto* taps = saved.empty() ? nullptr : saved[0].data_ptr<std::uint8_t>();
    const KernelTable& kernels = kernels_for(x);
    for_rows(pixels_of(y),
             [&](RowRange r) { kernels.max_pool(r, window_, x.data_ptr(), y.data_ptr(), taps); });
    return y;
  }

  void input_gradient(const at::Tensor& output_gradient, const Tensors&, const Tensors& saved,
                      const PassContext&, GradientSink& sink) override {
    if (!sink.wanted(0)) return;
    const at::Tensor dy = canonical(output_gradient);
    at::Tensor dx = empty_images(batched(dy.size(0), input_), dy, dy.scalar_type());
    const KernelTable& kernels = kernels_for(dy);
    for_rows({dy.size(0), dx.numel() / dy.size(0), place_of(dy)}, [&](RowRange r) {
      kernels.max_pool_backward(r, window_, dy.data_ptr(), saved[0].data_ptr<std::uint8_t>(),
                                dx.data_ptr());
    });
    sink.put(0, std::move(dx));
  }

 private:
  Shape input_;
  Window window_;
};

/// Saves nothing.
/// LibTorch's own kernels. Padding does not count as pixels.
class AvgPoolOperator final : public Operator {
 public:
  AvgPoolOperator(const AvgPool& attributes, Shape input)
      : a_(attributes), input_(std::move(input)) {}

  at::Tensor forward(const Tensors& inputs, const Tensors&, Tensors& saved,
                     const PassContext&) override {
    saved.clear();
    return at::avg_pool2d(canonical(inputs[0]), a_.kernel, a_.stride, a_.padding, false, false);
  }

  void input_gradient(const at::Tensor& dy, const Tensors&, const Tensors&, const PassContext&,
                      GradientSink& sink) override {
    if (!sink.wanted(0)) return;
    // Only the sizes of the input enter, and its layout.
    const at::Tensor like = empty_images(batched(dy.size(0), input_), dy, dy.scalar_type());
    sink.put(0, at::avg_pool2d_backward(canonical(dy), like, a_.kernel, a_.stride, a_.padding,
                                        false, false, std::nullopt));
  }

 private:
  AvgPool a_;
  Shape input_;
};

/// Saves nothing.
class GlobalAvgPoolOperator final : public Operator {
 public:
  explicit GlobalAvgPoolOperator(Shape input) : input_(std::move(input)) {}

  at::Tensor forward(const Tensors& inputs, const Tensors&, Tensors& saved,
                     const PassContext&) override {
    saved.clear();
    const at::Tensor x = canonical(inputs[0]);
    at::Tensor y = empty({x.size(0), input_[0]}, x);
    const KernelTable& kernels = kernels_for(x);
    for_rows(matrix_of(y), [&](RowRange r) {
      kernels.mean_rows(r, input_[1] * input_[2], x.data_ptr(), y.data_ptr());
    });
    return y;
  }

  void input_gradient(const at::Tensor& output_gradient, const Tensors&, const Tensors&,
                      const PassContext&, GradientSink& sink) override {
    if (!sink.wanted(0)) return;
    const at::Tensor dy = output_gradient.contiguous();
    at::Tensor dx = empty_images(batched(dy.size(0), input_), dy, dy.scalar_type());
    const KernelTable& kernels = kernels_for(dy);
    for_rows(matrix_of(dy), [&](RowRange r) {
      kernels.mean_rows_backward(r, input_[1] * input_[2], dy.data_ptr(), dx.data_ptr());
    });
    sink.put(0, std::move(dx));
  }

 private:
  Shape input_;
};

}  // namespace

OperatorPtr make(const MaxPool& a, const OperatorPlace& place) {
  if (a.kernel[0] * a.kernel[1] > 256) {
    throw UserError(fmt::format("max_pool '{}' has a window of {}x{}", place.node.name, a.kernel[0],
                                a.kernel[1]),
                    "at most 256 elements can be told apart");
  }
  return std::make_unique<MaxPoolOperator>(a, place.input());
}
OperatorPtr make(const AvgPool& attributes, const OperatorPlace& place) {
  return std::make_unique<AvgPoolOperator>(attributes, place.input());
}
OperatorPtr make(const GlobalAvgPool&, const OperatorPlace& place) {
  return std::make_unique<GlobalAvgPoolOperator>(place.input());
}

}  // namespace heteroperf
