// The loss over whole rows of logits. One pass over a row gives its loss and the log of its softmax
// sum, from which the backward pass makes the gradient in a second pass.
//
// Nothing as large as the logits is saved beside them: softmax = exp(x − log sum) is made again.
// Where nobody else holds the logits their gradient takes their memory, which for a language model
// is the largest tensor of the step; the backward pass may then run once per forward pass.
#include <ATen/ops/sum.h>

#include "metrics/base/error.hpp"
#include "runners/engine/operators/kernel_launch.hpp"
#include "runners/engine/operators/operator_factories.hpp"

namespace heteroperf {
namespace {

/// The sum of a host tensor in double, in the order of memory.
template <class Scalar>
double sum_of(const at::Tensor& values) {
  const auto* v = values.const_data_ptr<Scalar>();
  double sum = 0.0;
  for (std::int64_t i = 0; i < values.numel(); ++i) sum += static_cast<double>(v[i]);
  return sum;
}

/// Inputs: logits {…, classes} and targets. The output {1}, of the accumulation type, is the mean
/// over this micro-batch's targets; its gradient is multiplied by context.loss_scale. An undefined
/// output gradient stands for 1. Saves logits, targets and the log of each softmax sum.
class CrossEntropyOperator final : public Operator {
 public:
  CrossEntropyOperator(const CrossEntropy& attributes, Overwrite logits)
      : attributes_(attributes), logits_(logits) {}

  at::Tensor forward(const Tensors& inputs, const Tensors&, Tensors& saved,
                     const PassContext&) override {
    const at::Tensor logits = inputs[0].contiguous(), targets = inputs[1].contiguous();
    const Matrix m = matrix_of(logits);
    HETEROPERF_EXPECT(targets.numel() == m.rows);
    check_indices(targets, m.columns, "target");
    const at::Tensor losses = empty_accumulators({m.rows}, logits);
    const at::Tensor log_sums = uninitialised_like(losses);
    const KernelTable& kernels = kernels_for(logits);
    for_rows(m, [&](RowRange r) {
      kernels.cross_entropy(r, {attributes_.label_smoothing, 1.0}, logits.data_ptr(),
                            targets.const_data_ptr<std::int64_t>(), losses.data_ptr(),
                            log_sums.data_ptr());
    });
    saved = {logits, targets, log_sums};
    return mean(losses);
  }

  void input_gradient(const at::Tensor& dy, const Tensors&, const Tensors& saved,
                      const PassContext& context, GradientSink& sink) override {
    if (!sink.wanted(0)) return;
    const at::Tensor& logits = saved[0];
    const Matrix m = matrix_of(logits);
    const double upstream = dy.defined() ? dy.item().toDouble() : 1.0;
    const CrossEntropyTerms terms{attributes_.label_smoothing,
                                  upstream * context.loss_scale / static_cast<double>(m.rows)};
    at::Tensor gradient = logits_ == Overwrite::allowed ? logits : uninitialised_like(logits);
    const KernelTable& kernels = kernels_for(logits);
    for_rows(m, [&](RowRange r) {
      kernels.cross_entropy_backward(r, terms, logits.data_ptr(),
                                     saved[1].const_data_ptr<std::int64_t>(), saved[2].data_ptr(),
                                     gradient.data_ptr());
    });
    sink.put(0, std::move(gradient));
  }

 private:
  /// The sum is made in double; on a device it stays there.
  static at::Tensor mean(const at::Tensor& losses) {
    const auto count = static_cast<double>(losses.numel());
    if (losses.is_cuda()) {
      return at::sum(losses, at::kDouble).div_(count).to(losses.scalar_type()).view({1});
    }
    at::Tensor loss = empty({1}, losses);
    if (losses.scalar_type() == at::kDouble) {
      *loss.data_ptr<double>() = sum_of<double>(losses) / count;
    } else {
      *loss.data_ptr<float>() = static_cast<float>(sum_of<float>(losses) / count);
    }
    return loss;
  }

  CrossEntropy attributes_;
  Overwrite logits_;
};

}  // namespace

OperatorPtr make(const CrossEntropy& attributes, const OperatorPlace&, Overwrite logits) {
  return std::make_unique<CrossEntropyOperator>(attributes, logits);
}

}  // namespace heteroperf
