// Layer norm and RMS norm. Both normalise every row by itself; they differ in the statistics and in
// the kernels.
//
// The backward pass reads the row and its gradient once for everything that is wanted: the gradient
// of the input, and the sums over rows that are the parameters' gradients. A norm's input is often
// a residual stream whose gradient already has a part; where the sink offers that memory, the norm
// adds to it in place instead of making a tensor.
#include "runners/engine/operators/kernel_launch.hpp"
#include "runners/engine/operators/operator_factories.hpp"

namespace heteroperf {
namespace {

/// Where a norm writes its input's gradient: into the residual's gradient when that may be changed.
class NormGradient {
 public:
  NormGradient() = default;  // none wanted
  NormGradient(GradientSink& sink, const at::Tensor& like) : sink_(&sink) {
    if (!sink.wanted(0)) return;
    values = sink.reusable(0);
    store = Store::add;
    if (values.defined() && values.is_contiguous()) return;
    values = uninitialised_like(like);
    store = Store::overwrite;
  }
  void deliver() {
    if (!values.defined()) return;
    store == Store::add ? sink_->replace(0, std::move(values)) : sink_->put(0, std::move(values));
  }

  at::Tensor values;
  Store store = Store::overwrite;

 private:
  GradientSink* sink_ = nullptr;
};

/// The common part of norms over rows: one pass over the rows gives any of the gradients wanted.
class RowNormOperator : public Operator {
 public:
  void input_gradient(const at::Tensor& dy, const Tensors& parameters, const Tensors& saved,
                      const PassContext&, GradientSink& sink) override {
    if (!sink.wanted(0)) return;
    NormGradient target(sink, saved[0]);
    run(dy, parameters[0], saved, target, nullptr, {});
    target.deliver();
  }

  void weight_gradient(const at::Tensor& dy, const Tensors& saved, const PassContext& context,
                       Tensors& gradients) override {
    run(dy, at::Tensor(), saved, NormGradient(), &gradients, context);
  }

  void backward(const at::Tensor& dy, const Tensors& parameters, const Tensors& saved,
                const PassContext& context, GradientSink& sink, Tensors& gradients) override {
    NormGradient target(sink, saved[0]);
    run(dy, parameters[0], saved, target, &gradients, context);
    target.deliver();
  }

 private:
  /// Gradients of the input (into `dx`, where wanted) and of the parameters (where not null).
  virtual void run(const at::Tensor& dy, const at::Tensor& weight, const Tensors& saved,
                   const NormGradient& dx, Tensors* gradients,
                   const PassContext& context) const = 0;
};

/// Saves x (contiguous), mean and 1/deviation per row.
class LayerNormOperator final : public RowNormOperator {
 public:
  explicit LayerNormOperator(const LayerNorm& attributes) : attributes_(attributes) {}

  at::Tensor forward(const Tensors& inputs, const Tensors& parameters, Tensors& saved,
                     const PassContext&) override {
    const at::Tensor x = inputs[0].contiguous();
    const Matrix m = matrix_of(x);
    const at::Tensor mean = empty_accumulators({m.rows}, x);
    const at::Tensor rstd = empty_accumulators({m.rows}, x);
    at::Tensor y = uninitialised_like(x);
    const at::Tensor bias = attributes_.bias ? parameters[1] : at::Tensor();
    run_kernel(&KernelTable::layer_norm, m, attributes_.eps, x, parameters[0], bias, y, mean, rstd);
    saved = {x, mean, rstd};
    return y;
  }

 private:
  void run(const at::Tensor& output_gradient, const at::Tensor& parameter, const Tensors& saved,
           const NormGradient& dx, Tensors* gradients, const PassContext& context) const override {
    const at::Tensor dy = output_gradient.contiguous();
    const RowBlocks blocks(matrix_of(dy));
    const ColumnPartials weight(blocks, dy), bias(blocks, dy);
    blocks.run(&KernelTable::layer_norm_backward, dy, saved[0], parameter, saved[1], saved[2],
               dx.store, dx.values, gradients != nullptr ? &weight : nullptr,
               gradients != nullptr ? &bias : nullptr);
    if (gradients == nullptr) return;
    weight.combine_into((*gradients)[0], context.accumulation);
    if (attributes_.bias) bias.combine_into((*gradients)[1], context.accumulation);
  }

  LayerNorm attributes_;
};

/// Saves x (contiguous) and 1/root mean square per row.
class RmsNormOperator final : public RowNormOperator {
 public:
  explicit RmsNormOperator(const RmsNorm& attributes) : attributes_(attributes) {}

  at::Tensor forward(const Tensors& inputs, const Tensors& parameters, Tensors& saved,
                     const PassContext&) override {
    const at::Tensor x = inputs[0].contiguous();
    const Matrix m = matrix_of(x);
    const at::Tensor rstd = empty_accumulators({m.rows}, x);
    at::Tensor y = uninitialised_like(x);
    run_kernel(&KernelTable::rms_norm, m, attributes_.eps, x, parameters[0], y, rstd);
    saved = {x, rstd};
    return y;
  }

 private:
  void run(const at::Tensor& output_gradient, const at::Tensor& parameter, const Tensors& saved,
           const NormGradient& dx, Tensors* gradients, const PassContext& context) const override {
    const at::Tensor dy = output_gradient.contiguous();
    const RowBlocks blocks(matrix_of(dy));
    const ColumnPartials weight(blocks, dy);
    blocks.run(&KernelTable::rms_norm_backward, dy, saved[0], parameter, saved[1], dx.store,
               dx.values, gradients != nullptr ? &weight : nullptr);
    if (gradients != nullptr) weight.combine_into((*gradients)[0], context.accumulation);
  }

  RmsNorm attributes_;
};

}  // namespace

OperatorPtr make(const LayerNorm& attributes, const OperatorPlace&) {
  return std::make_unique<LayerNormOperator>(attributes);
}
OperatorPtr make(const RmsNorm& attributes, const OperatorPlace&) {
  return std::make_unique<RmsNormOperator>(attributes);
}

}  // namespace heteroperf
