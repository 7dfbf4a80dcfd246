// Layer norm and RMS norm. Both normalise every row by itself; RMS norm takes no mean from it.
//
// The backward pass reads the row and its gradient once for everything that is wanted: the gradient
// of the input, and the sums over rows that are the parameters' gradients. A norm's input is often
// a residual stream whose gradient already has a part; where the sink offers that memory, the norm
// adds to it in place instead of making a tensor.
#include <optional>

#include "runners/engine/operators/kernel_launch.hpp"
#include "runners/engine/operators/operator_factories.hpp"

namespace heteroperf {
namespace {

/// Where a norm writes its input's gradient: into the residual's gradient when that may be changed.
class NormGradient {
 public:
  /// A null sink wants none.
  NormGradient(GradientSink* sink, const at::Tensor& like) : sink_(sink) {
    if (sink == nullptr || !sink->wanted(0)) return;
    values = sink->reusable(0);
    accumulation = Accumulation::add;
    if (values.defined() && values.is_contiguous()) return;
    values = uninitialised_like(like);
    accumulation = Accumulation::overwrite;
  }
  void deliver() {
    if (!values.defined()) return;
    accumulation == Accumulation::add ? sink_->replace(0, std::move(values))
                                      : sink_->put(0, std::move(values));
  }

  at::Tensor values;
  Accumulation accumulation = Accumulation::overwrite;

 private:
  GradientSink* sink_;
};

/// Saves x (contiguous), per row 1/deviation or 1/root mean square, and with a mean that.
class RowNormOperator final : public Operator {
 public:
  enum class Statistics { mean_and_deviation, root_mean_square };
  RowNormOperator(Statistics statistics, double eps, bool bias)
      : has_mean_(statistics == Statistics::mean_and_deviation), eps_(eps), bias_(bias) {}

  at::Tensor forward(const Tensors& inputs, const Tensors& parameters, Tensors& saved,
                     const PassContext&) override {
    const at::Tensor x = inputs[0].contiguous();
    const Matrix m = matrix_of(x);
    const at::Tensor rstd = empty_accumulators({m.rows}, x);
    const at::Tensor mean = has_mean_ ? empty_accumulators({m.rows}, x) : at::Tensor();
    const at::Tensor bias = bias_ ? parameters[1] : at::Tensor();
    at::Tensor y = uninitialised_like(x);
    run_kernel(&KernelTable::layer_norm, m, eps_, x, parameters[0], bias, y, mean, rstd);
    saved = {x, rstd};
    if (has_mean_) saved.push_back(mean);
    return y;
  }

 private:
  /// One pass over the rows gives any of the gradients wanted. Undefined tensors and null sums are
  /// not made.
  void gradients(const BackwardPass& pass) override {
    const auto& [output_gradient, parameters, saved, context, sink, gradients] = pass;
    NormGradient dx(sink, saved[0]);
    if (!dx.values.defined() && gradients == nullptr) return;
    const at::Tensor dy = output_gradient.contiguous();
    const at::Tensor weight = parameters.empty() ? at::Tensor() : parameters[0];
    const RowBlocks blocks(matrix_of(dy));
    const ColumnPartials weight_sums(blocks, dy);
    const ColumnPartials* const weights = gradients != nullptr ? &weight_sums : nullptr;
    std::optional<ColumnPartials> bias_sums;
    if (gradients != nullptr && has_mean_) bias_sums.emplace(blocks, dy);
    const ColumnPartials* const biases = bias_sums ? &*bias_sums : nullptr;
    const at::Tensor mean = has_mean_ ? saved[2] : at::Tensor();
    blocks.run(&KernelTable::layer_norm_backward, dy, saved[0], weight, mean, saved[1],
               dx.accumulation, dx.values, weights, biases);
    if (biases != nullptr && bias_) biases->combine_into((*gradients)[1], context.accumulation);
    if (weights != nullptr) weights->combine_into((*gradients)[0], context.accumulation);
    dx.deliver();
  }

  bool has_mean_;
  double eps_;
  bool bias_;
};

}  // namespace

OperatorPtr make(const LayerNorm& attributes, const OperatorPlace&) {
  return std::make_unique<RowNormOperator>(RowNormOperator::Statistics::mean_and_deviation,
                                           attributes.eps, attributes.bias);
}
OperatorPtr make(const RmsNorm& attributes, const OperatorPlace&) {
  return std::make_unique<RowNormOperator>(RowNormOperator::Statistics::root_mean_square,
                                           attributes.eps, false);
}

}  // namespace heteroperf
