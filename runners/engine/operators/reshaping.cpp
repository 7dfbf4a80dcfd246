// Changes of shape between images, sequences and rows. Most of them are views of the same memory.
//
// Images are kept channels last, so an image is already a sequence of pixels and needs no copy to
// become one. Flattening keeps the logical order {C, H, W}, which is another order in memory, and
// copies where these differ.
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>

#include "runners/engine/operators/kernel_launch.hpp"
#include "runners/engine/operators/operator_factories.hpp"

namespace heteroperf {
namespace {

/// {C, H, W} → {C·H·W} in this order, whatever the memory layout. Saves nothing.
class FlattenOperator final : public Operator {
 public:
  explicit FlattenOperator(Shape input) : input_(std::move(input)) {}

  at::Tensor forward(const Tensors& inputs, const Tensors&, Tensors& saved,
                     const PassContext&) override {
    saved.clear();
    return inputs[0].reshape({inputs[0].size(0), -1});
  }

  void input_gradient(const at::Tensor& dy, const Tensors&, const Tensors&, const PassContext&,
                      GradientSink& sink) override {
    if (!sink.wanted(0)) return;
    std::vector<std::int64_t> sizes{dy.size(0)};
    sizes.insert(sizes.end(), input_.begin(), input_.end());
    sink.put(0, dy.reshape(sizes));
  }

 private:
  Shape input_;
};

/// {C, H, W} → {H·W, C}: no copy from channels-last images. Saves nothing.
class ToSequenceOperator final : public Operator {
 public:
  explicit ToSequenceOperator(Shape input) : input_(std::move(input)) {}

  at::Tensor forward(const Tensors& inputs, const Tensors&, Tensors& saved,
                     const PassContext&) override {
    saved.clear();
    const at::Tensor x = canonical(inputs[0]);
    return x.permute({0, 2, 3, 1}).reshape({x.size(0), input_[1] * input_[2], input_[0]});
  }

  void input_gradient(const at::Tensor& dy, const Tensors&, const Tensors&, const PassContext&,
                      GradientSink& sink) override {
    if (!sink.wanted(0)) return;
    sink.put(
        0,
        dy.contiguous().view({dy.size(0), input_[1], input_[2], input_[0]}).permute({0, 3, 1, 2}));
  }

 private:
  Shape input_;
};

/// Puts a learned row in front. Saves nothing.
class ClassTokenOperator final : public Operator {
 public:
  at::Tensor forward(const Tensors& inputs, const Tensors& parameters, Tensors& saved,
                     const PassContext&) override {
    saved.clear();
    const at::Tensor& x = inputs[0];
    return at::cat({parameters[0].view({1, 1, -1}).expand({x.size(0), 1, x.size(2)}), x}, 1);
  }

  void input_gradient(const at::Tensor& dy, const Tensors&, const Tensors&, const PassContext&,
                      GradientSink& sink) override {
    if (sink.wanted(0)) sink.put(0, dy.narrow(1, 1, dy.size(1) - 1).contiguous());
  }

  void weight_gradient(const at::Tensor& dy, const Tensors&, const PassContext& context,
                       Tensors& gradients) override {
    const at::Tensor rows = dy.select(1, 0).contiguous();
    sum_columns_into(rows, matrix_of(rows), gradients[0], context.accumulation);
  }
};

/// Saves nothing.
/// Takes one position of every sequence; its gradient is zero everywhere else.
class TakeTokenOperator final : public Operator {
 public:
  TakeTokenOperator(const TakeToken& attributes, Shape input)
      : index_(attributes.index), input_(std::move(input)) {}

  at::Tensor forward(const Tensors& inputs, const Tensors&, Tensors& saved,
                     const PassContext&) override {
    saved.clear();
    return inputs[0].select(1, index_).contiguous();
  }

  void input_gradient(const at::Tensor& dy, const Tensors&, const Tensors&, const PassContext&,
                      GradientSink& sink) override {
    if (!sink.wanted(0)) return;
    at::Tensor dx = at::zeros({dy.size(0), input_[0], input_[1]}, dy.options());
    dx.select(1, index_).copy_(dy);
    sink.put(0, std::move(dx));
  }

 private:
  std::int64_t index_;
  Shape input_;
};

}  // namespace

OperatorPtr make(const Flatten&, const OperatorPlace& place) {
  return std::make_unique<FlattenOperator>(place.input());
}
OperatorPtr make(const ToSequence&, const OperatorPlace& place) {
  return std::make_unique<ToSequenceOperator>(place.input());
}
OperatorPtr make(const ClassToken&, const OperatorPlace&) {
  return std::make_unique<ClassTokenOperator>();
}
OperatorPtr make(const TakeToken& attributes, const OperatorPlace& place) {
  return std::make_unique<TakeTokenOperator>(attributes, place.input());
}

}  // namespace heteroperf
