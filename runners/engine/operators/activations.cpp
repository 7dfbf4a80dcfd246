// Element-wise functions, and the gated product of Llama's feed-forward layer (swiglu). A function
// keeps either its input or its output for the backward pass, whichever gives the slope.
//
// The functions differ in their kernels alone, so one operator serves all of them. Images keep
// their layout, because an element-wise pass may go through memory in any order as long as all its
// tensors have the same.
#include "runners/engine/operators/kernel_launch.hpp"
#include "runners/engine/operators/unary_operator.hpp"

namespace heteroperf {
namespace {

enum class Keeps { input, output };

OperatorPtr make_activation(ActivationKind kind, Keeps keeps) {
  return make_unary(
      [kind, keeps](const at::Tensor& input, Tensors& saved, const PassContext&) {
        const at::Tensor x = canonical(input);
        at::Tensor y = uninitialised_like(x);
        run_kernel(&KernelTable::activation, elements_of(x), kind, x, nullptr, y);
        saved = {keeps == Keeps::input ? x : y};
        return y;
      },
      [kind](const at::Tensor& output_gradient, const Tensors& saved, const PassContext&) {
        const at::Tensor dy = canonical(output_gradient);
        at::Tensor dx = uninitialised_like(dy);
        run_kernel(&KernelTable::activation_backward, elements_of(dy), kind, dy, saved[0], dx,
                   nullptr);
        return dx;
      });
}

/// silu(gate) · up; saves both inputs.
class SwigluOperator final : public Operator {
 public:
  at::Tensor forward(const Tensors& inputs, const Tensors&, Tensors& saved,
                     const PassContext&) override {
    saved = {canonical(inputs[0]), canonical(inputs[1])};
    at::Tensor y = uninitialised_like(saved[0]);
    run_kernel(&KernelTable::swiglu, elements_of(y), saved[0], saved[1], y);
    return y;
  }

 private:
  void gradients(const BackwardPass& pass) override {
    if (!pass.wants(0) && !pass.wants(1)) return;
    const at::Tensor dy = canonical(pass.output_gradient);
    const Tensors& saved = pass.saved;
    at::Tensor gate = uninitialised_like(dy), up = uninitialised_like(dy);
    run_kernel(&KernelTable::swiglu_backward, elements_of(dy), dy, saved[0], saved[1], gate, up);
    if (pass.wants(0)) pass.sink->put(0, std::move(gate));
    if (pass.wants(1)) pass.sink->put(1, std::move(up));
  }
};

}  // namespace

ActivationKind kind_of(GeluForm form) {
  return form == GeluForm::erf ? ActivationKind::gelu_erf : ActivationKind::gelu_tanh;
}

OperatorPtr make(const Relu&, const OperatorPlace&) {
  return make_activation(ActivationKind::relu, Keeps::output);
}
OperatorPtr make(const Gelu& attributes, const OperatorPlace&) {
  return make_activation(kind_of(attributes.form), Keeps::input);
}
OperatorPtr make(const Silu&, const OperatorPlace&) {
  return make_activation(ActivationKind::silu, Keeps::input);
}
OperatorPtr make(const Tanh&, const OperatorPlace&) {
  return make_activation(ActivationKind::tanh, Keeps::output);
}
OperatorPtr make_swiglu() { return std::make_unique<SwigluOperator>(); }

}  // namespace heteroperf
