// Element-wise functions, and the gated product of Llama's feed-forward layer (swiglu). A function
// keeps either its input or its output for the backward pass, whichever gives the slope.
//
// The functions differ in their kernels alone, so one operator serves all of them: a table entry
// names the kernels of both passes and the tensor that is kept. Images keep their layout, because
// an element-wise pass may go through memory in any order as long as all its tensors have the same.
#include "runners/engine/operators/kernel_launch.hpp"
#include "runners/engine/operators/operator_factories.hpp"

namespace heteroperf {
namespace {

using Forward = void (*)(const KernelTable&, RowRange, const void* x, void* y);
using Backward = void (*)(const KernelTable&, RowRange, const void* dy, const void* kept, void* dx);
enum class Keeps { input, output };

/// An element-wise function and its slope, from the one tensor it keeps.
struct Function {
  Forward forward;
  Backward backward;
  Keeps keeps;
};

constexpr Function relu_function{
    [](const KernelTable& k, RowRange r, const void* x, void* y) { k.relu(r, x, y); },
    [](const KernelTable& k, RowRange r, const void* dy, const void* y, void* dx) {
      k.relu_backward(r, dy, y, dx);
    },
    Keeps::output};
constexpr Function silu_function{
    [](const KernelTable& k, RowRange r, const void* x, void* y) { k.silu(r, x, y); },
    [](const KernelTable& k, RowRange r, const void* dy, const void* x, void* dx) {
      k.silu_backward(r, dy, x, dx);
    },
    Keeps::input};
constexpr Function tanh_function{
    [](const KernelTable& k, RowRange r, const void* x, void* y) { k.tanh(r, x, y); },
    [](const KernelTable& k, RowRange r, const void* dy, const void* y, void* dx) {
      k.tanh_backward(r, dy, y, dx);
    },
    Keeps::output};

template <GeluKind kind>
constexpr Function gelu_function{// Without a bias the kernel only reads its first argument.
                                 [](const KernelTable& k, RowRange r, const void* x, void* y) {
                                   k.bias_gelu(r, kind, const_cast<void*>(x), nullptr, y);
                                 },
                                 [](const KernelTable& k, RowRange r, const void* dy, const void* x,
                                    void* dx) { k.gelu_backward(r, kind, dy, x, dx, nullptr); },
                                 Keeps::input};

class ActivationOperator final : public Operator {
 public:
  explicit ActivationOperator(const Function& function) : function_(function) {}

  at::Tensor forward(const Tensors& inputs, const Tensors&, Tensors& saved,
                     const PassContext&) override {
    const at::Tensor x = canonical(inputs[0]);
    at::Tensor y = uninitialised_like(x);
    const KernelTable& kernels = kernels_for(x);
    for_elements(x, [&](RowRange r) { function_.forward(kernels, r, x.data_ptr(), y.data_ptr()); });
    saved = {function_.keeps == Keeps::input ? x : y};
    return y;
  }

  void input_gradient(const at::Tensor& output_gradient, const Tensors&, const Tensors& saved,
                      const PassContext&, GradientSink& sink) override {
    if (!sink.wanted(0)) return;
    const at::Tensor dy = canonical(output_gradient);
    at::Tensor dx = uninitialised_like(dy);
    const KernelTable& kernels = kernels_for(dy);
    for_elements(dy, [&](RowRange r) {
      function_.backward(kernels, r, dy.data_ptr(), saved[0].data_ptr(), dx.data_ptr());
    });
    sink.put(0, std::move(dx));
  }

 private:
  const Function& function_;
};

/// silu(gate) · up; saves both inputs.
class SwigluOperator final : public Operator {
 public:
  at::Tensor forward(const Tensors& inputs, const Tensors&, Tensors& saved,
                     const PassContext&) override {
    saved = {canonical(inputs[0]), canonical(inputs[1])};
    at::Tensor y = uninitialised_like(saved[0]);
    const KernelTable& kernels = kernels_for(y);
    for_elements(y, [&](RowRange r) {
      kernels.swiglu(r, saved[0].data_ptr(), saved[1].data_ptr(), y.data_ptr());
    });
    return y;
  }

  void input_gradient(const at::Tensor& output_gradient, const Tensors&, const Tensors& saved,
                      const PassContext&, GradientSink& sink) override {
    if (!sink.wanted(0) && !sink.wanted(1)) return;
    const at::Tensor dy = canonical(output_gradient);
    at::Tensor gate = uninitialised_like(dy), up = uninitialised_like(dy);
    const KernelTable& kernels = kernels_for(dy);
    for_elements(dy, [&](RowRange r) {
      kernels.swiglu_backward(r, dy.data_ptr(), saved[0].data_ptr(), saved[1].data_ptr(),
                              gate.data_ptr(), up.data_ptr());
    });
    if (sink.wanted(0)) sink.put(0, std::move(gate));
    if (sink.wanted(1)) sink.put(1, std::move(up));
  }
};

}  // namespace

OperatorPtr make(const Relu&, const OperatorPlace&) {
  return std::make_unique<ActivationOperator>(relu_function);
}
OperatorPtr make(const Gelu& attributes, const OperatorPlace&) {
  return std::make_unique<ActivationOperator>(attributes.form == GeluForm::erf
                                                  ? gelu_function<GeluKind::erf>
                                                  : gelu_function<GeluKind::tanh>);
}
OperatorPtr make(const Silu&, const OperatorPlace&) {
  return std::make_unique<ActivationOperator>(silu_function);
}
OperatorPtr make(const Tanh&, const OperatorPlace&) {
  return std::make_unique<ActivationOperator>(tanh_function);
}
OperatorPtr make_swiglu() { return std::make_unique<SwigluOperator>(); }

}  // namespace heteroperf
