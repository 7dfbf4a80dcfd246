// Changes of shape between images, sequences and rows. Most of them are views of the same memory.
//
// Images are kept channels last, so an image is already a sequence of pixels and needs no copy to
// become one. Flattening keeps the logical order {C, H, W}, which is another order in memory, and
// copies where these differ.
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>

#include "runners/engine/operators/kernel_launch.hpp"
#include "runners/engine/operators/unary_operator.hpp"

namespace heteroperf {
namespace {

/// Puts a learned row in front. Saves nothing.
class ClassTokenOperator final : public Operator {
 public:
  at::Tensor forward(const Tensors& inputs, const Tensors& parameters, Tensors& saved,
                     const PassContext&) override {
    saved.clear();
    const at::Tensor& x = inputs[0];
    return at::cat({parameters[0].view({1, 1, -1}).expand({x.size(0), 1, x.size(2)}), x}, 1);
  }

 private:
  void gradients(const BackwardPass& pass) override {
    const at::Tensor& dy = pass.output_gradient;
    if (pass.parameter_gradients != nullptr) {
      const at::Tensor rows = dy.select(1, 0).contiguous();
      sum_columns_into(rows, matrix_of(rows), (*pass.parameter_gradients)[0],
                       pass.context.accumulation);
    }
    if (pass.wants(0)) pass.sink->put(0, dy.narrow(1, 1, dy.size(1) - 1).contiguous());
  }
};

}  // namespace

/// {C, H, W} → {C·H·W} in this order, whatever the memory layout. Saves nothing.
OperatorPtr make(const Flatten&, const OperatorPlace& place) {
  return make_unary(
      [](const at::Tensor& x, auto&&...) {
        return x.reshape({x.size(0), -1});
      },
      [input = place.input()](const at::Tensor& dy, auto&&...) {
        std::vector<std::int64_t> sizes{dy.size(0)};
        sizes.insert(sizes.end(), input.begin(), input.end());
        return dy.reshape(sizes);
      });
}

/// {C, H, W} → {H·W, C}: no copy from channels-last images. Saves nothing.
OperatorPtr make(const ToSequence&, const OperatorPlace& place) {
  const Shape& input = place.input();
  return make_unary(
      [](const at::Tensor& images, auto&&...) {
        const at::Tensor x = canonical(images).permute({0, 2, 3, 1});
        return x.reshape({x.size(0), x.size(1) * x.size(2), x.size(3)});
      },
      [input](const at::Tensor& dy, auto&&...) {
        const at::Tensor pixels = dy.contiguous().view({dy.size(0), input[1], input[2], input[0]});
        return pixels.permute({0, 3, 1, 2});
      });
}

OperatorPtr make(const ClassToken&, const OperatorPlace&) {
  return std::make_unique<ClassTokenOperator>();
}

/// Takes one position of every sequence; its gradient is zero everywhere else. Saves nothing.
OperatorPtr make(const TakeToken& attributes, const OperatorPlace& place) {
  const Shape& input = place.input();
  return make_unary([index = attributes.index](
                        const at::Tensor& x, auto&&...) { return x.select(1, index).contiguous(); },
                    [index = attributes.index, input](const at::Tensor& dy, auto&&...) {
                      at::Tensor dx = at::zeros({dy.size(0), input[0], input[1]}, dy.options());
                      dx.select(1, index).copy_(dy);
                      return dx;
                    });
}

}  // namespace heteroperf
