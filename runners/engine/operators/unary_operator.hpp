#pragma once

#include <memory>
#include <utility>

#include "runners/engine/operators/operator_factories.hpp"

namespace heteroperf {

/// An operator of one input without parameters, made of two functions: forward(input, saved,
/// context) gives the output and leaves in `saved`, empty before, what backward(output gradient,
/// saved, context) needs to give the input's gradient.
template <class Forward, class Backward>
class UnaryOperator final : public Operator {
 public:
  UnaryOperator(Forward forward, Backward backward)
      : forward_(std::move(forward)), backward_(std::move(backward)) {}

  at::Tensor forward(const Tensors& inputs, const Tensors&, Tensors& saved,
                     const PassContext& context) override {
    saved.clear();
    return forward_(inputs[0], saved, context);
  }

 private:
  void gradients(const BackwardPass& pass) override {
    if (!pass.wants(0)) return;
    pass.sink->put(0, backward_(pass.output_gradient, pass.saved, pass.context));
  }

  Forward forward_;
  Backward backward_;
};

template <class Forward, class Backward>
OperatorPtr make_unary(Forward forward, Backward backward) {
  return std::make_unique<UnaryOperator<Forward, Backward>>(std::move(forward),
                                                            std::move(backward));
}

}  // namespace heteroperf
