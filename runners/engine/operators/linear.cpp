// The linear layer. Its matrix products take the chosen way (product.hpp); bias, gelu and residual
// are joined in one pass of our kernels over the product.
//
// The passes around the products are bound by memory, so each value is touched once. The forward
// pass adds the bias, keeps the sum where a gelu needs it for its slope, and writes the result. The
// backward pass makes the gradient before the gelu and, in the same pass, the column sums that are
// the bias's gradient. B and W together share this pass; apart each makes it again, because keeping
// its result between them would cost a tensor. Gradients of weights and of inputs are added by the
// product itself where their buffer allows.
#include <optional>

#include "runners/engine/operators/kernel_launch.hpp"
#include "runners/engine/operators/operator_factories.hpp"
#include "runners/engine/operators/product.hpp"
#include "workloads/graph/node_rules.hpp"

namespace heteroperf {
namespace {

at::Tensor as_matrix(const at::Tensor& tensor) { return tensor.reshape({-1, tensor.size(-1)}); }

/// y = x Wᵀ + b, then gelu or + residual in the same pass over the product. Saves x unless the
/// weight is frozen, and before a gelu the sum x Wᵀ + b.
class LinearOperator final : public Operator {
 public:
  LinearOperator(bool bias, bool trained, LinearEpilogue epilogue)
      : bias_(bias), trained_(trained), epilogue_(epilogue) {}

  at::Tensor forward(const Tensors& inputs, const Tensors& parameters, Tensors& saved,
                     const PassContext&) override {
    const at::Tensor& x = inputs[0];
    at::Tensor sum = product(as_matrix(x), parameters[0].t());
    saved = {trained_ ? x : at::Tensor()};
    std::vector<std::int64_t> shape = x.sizes().vec();
    shape.back() = sum.size(1);
    return finish(sum, inputs, parameters, saved).view(shape);
  }

 private:
  void gradients(const BackwardPass& pass) override {
    const auto& [dy, parameters, saved, context, sink, gradients] = pass;
    const bool input = pass.wants(0);
    if (passes_residual() && pass.wants(1)) sink->put(1, dy);
    if (!input && gradients == nullptr) return;
    const at::Tensor g = product_gradient(pass);
    // Wᵀ's gradient is gᵀ x, added to the buffer by the product itself.
    if (gradients != nullptr) {
      multiply_into((*gradients)[0], g.t(), as_matrix(saved[0]), context.accumulation);
    }
    if (!input) return;
    std::vector<std::int64_t> shape = dy.sizes().vec();
    shape.back() = parameters[0].size(1);
    put_product(*sink, 0, g, parameters[0], shape);
  }

  bool passes_residual() const { return epilogue_.kind == LinearEpilogue::Kind::residual; }
  bool has_gelu() const { return epilogue_.kind == LinearEpilogue::Kind::gelu; }
  ActivationKind gelu() const { return kind_of(epilogue_.gelu); }

  /// Bias and gelu, or bias and residual, in one pass over the product.
  at::Tensor finish(const at::Tensor& sum, const Tensors& inputs, const Tensors& parameters,
                    Tensors& saved) const {
    const at::Tensor bias = bias_ ? parameters[1] : at::Tensor();
    if (has_gelu()) {
      at::Tensor y = uninitialised_like(sum);
      run_kernel(&KernelTable::activation, matrix_of(sum), gelu(), sum, bias, y);
      // The kernel has stored the sum with the bias in the product's own memory.
      saved.push_back(sum);
      return y;
    }
    at::Tensor residual = passes_residual() ? inputs[1].contiguous() : at::Tensor();
    if (bias.defined() || residual.defined()) {
      run_kernel(&KernelTable::add, matrix_of(sum), sum, bias, 1, residual, false, sum);
    }
    return sum;
  }

  /// The gradient of x Wᵀ + b and, beside it in one pass, the bias's gradient.
  at::Tensor product_gradient(const BackwardPass& pass) const {
    const at::Tensor g = as_matrix(pass.output_gradient).contiguous();
    const RowBlocks blocks(matrix_of(g));
    std::optional<ColumnPartials> column_sums;
    if (bias_ && pass.parameter_gradients != nullptr) column_sums.emplace(blocks, g);
    const ColumnPartials* const sums = column_sums ? &*column_sums : nullptr;
    at::Tensor result = g;
    if (has_gelu()) {
      result = uninitialised_like(g);
      blocks.run(&KernelTable::activation_backward, gelu(), g, pass.saved[1], result, sums);
    } else if (sums != nullptr) {
      blocks.run(&KernelTable::column_sum, g, sums);
    }
    if (sums != nullptr) {
      sums->combine_into((*pass.parameter_gradients)[1], pass.context.accumulation);
    }
    return result;
  }

  bool bias_, trained_;
  LinearEpilogue epilogue_;
};

}  // namespace

OperatorPtr make(const Linear& attributes, const OperatorPlace& place, LinearEpilogue epilogue) {
  return std::make_unique<LinearOperator>(attributes.bias,
                                          has_trained_weight(place.graph, place.node), epilogue);
}

}  // namespace heteroperf
