// Tensor-parallel ranks add up the gradients of some tensors. A consumer that every rank runs on
// the whole tensor would be counted once per rank; this wrapper keeps its gradient back on all
// ranks but one.
//
// The wrapped operator runs unchanged. It writes to a sink that says "not wanted" for the inputs
// withheld, so products that nobody would count are not even made; and should the operator give
// such a gradient all the same, the sink drops it.
#include <utility>

#include "runners/engine/operators/operator_factories.hpp"

namespace heteroperf {
namespace {

class WithholdingSink final : public GradientSink {
 public:
  WithholdingSink(GradientSink& sink, const std::vector<bool>& given)
      : sink_(sink), given_(given) {}

  bool wanted(std::size_t input) const override { return given(input) && sink_.wanted(input); }
  at::Tensor reusable(std::size_t input) override {
    return given(input) ? sink_.reusable(input) : at::Tensor();
  }
  void put(std::size_t input, at::Tensor gradient) override {
    if (given(input)) sink_.put(input, std::move(gradient));
  }
  void replace(std::size_t input, at::Tensor gradient) override {
    if (given(input)) sink_.replace(input, std::move(gradient));
  }

 private:
  bool given(std::size_t input) const { return input >= given_.size() || given_[input]; }

  GradientSink& sink_;
  const std::vector<bool>& given_;
};

/// Runs `op`, and lets only some of its input gradients through. Saves what `op` saves.
class WithholdingOperator final : public Operator {
 public:
  WithholdingOperator(OperatorPtr op, std::vector<bool> given)
      : op_(std::move(op)), given_(std::move(given)) {}

  at::Tensor forward(const Tensors& inputs, const Tensors& parameters, Tensors& saved,
                     const PassContext& context) override {
    return op_->forward(inputs, parameters, saved, context);
  }
  void input_gradient(const at::Tensor& dy, const Tensors& parameters, const Tensors& saved,
                      const PassContext& context, GradientSink& sink) override {
    WithholdingSink some(sink, given_);
    op_->input_gradient(dy, parameters, saved, context, some);
  }
  void weight_gradient(const at::Tensor& dy, const Tensors& saved, const PassContext& context,
                       Tensors& gradients) override {
    op_->weight_gradient(dy, saved, context, gradients);
  }
  void backward(const at::Tensor& dy, const Tensors& parameters, const Tensors& saved,
                const PassContext& context, GradientSink& sink, Tensors& gradients) override {
    WithholdingSink some(sink, given_);
    op_->backward(dy, parameters, saved, context, some, gradients);
  }
  Tensors buffers() const override { return op_->buffers(); }

 private:
  OperatorPtr op_;
  std::vector<bool> given_;
};

}  // namespace

OperatorPtr make_withholding(OperatorPtr op, std::vector<bool> given) {
  return std::make_unique<WithholdingOperator>(std::move(op), std::move(given));
}

}  // namespace heteroperf
