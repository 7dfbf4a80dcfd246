#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "runners/engine/operators/operator_group.hpp"

namespace heteroperf {

/// One operator, a node or a chain of nodes that run as one, with everything that goes into it.
struct OperatorCall {
  const ModelGraph& graph;
  const OperatorGroup& group;
  Tensors inputs;  ///< in the group's order, behind them the targets of a loss
  Tensors parameters;
  at::Tensor output_gradient;  ///< a loss has {1}
  Tensors buffers;             ///< running statistics before the call
  PassContext context;
};

/// The largest relative error of one rounding, by what is rounded.
struct Roundoffs {
  double stored = 0;       ///< a result on its way to memory
  double accumulated = 0;  ///< a step of a computation
  double product = 0;      ///< a term of a product or convolution
  double attention = 0;    ///< a probability, where it is multiplied with a value
  double smallest = 0;     ///< absolute: a number below it may become zero
};

/// A value, and by how much rounding may move it: to first order, without the rounding of the
/// result itself. Both are float64.
struct Approximation {
  at::Tensor value, error;
};

/// The results of an operator. An input that has no gradient (indices, targets) has none here.
struct GoldenResult {
  Approximation output;
  std::vector<std::optional<Approximation>> input_gradients;
  std::vector<Approximation> parameter_gradients;
  std::vector<Approximation> buffers;  ///< running statistics behind the call
};

/// Keeps the gradient of each input; an input that occurs twice has two slots.
class CheckedSlots final : public GradientSink {
 public:
  /// Inputs of numbers have gradients.
  explicit CheckedSlots(const Tensors& inputs) : gradients(inputs.size()), inputs_(inputs) {}
  bool wanted(std::size_t input) const override { return inputs_[input].is_floating_point(); }
  at::Tensor reusable(std::size_t input) override { return std::exchange(gradients[input], {}); }
  void put(std::size_t input, at::Tensor gradient) override {
    const at::Tensor& there = gradients[input];
    gradients[input] = there.defined() ? there.add(gradient) : gradient;
  }
  void replace(std::size_t input, at::Tensor gradient) override {
    gradients[input] = std::move(gradient);
  }
  Tensors gradients;

 private:
  Tensors inputs_;
};

/// √K, the factor by which roundings grow in a sum of K terms.
double root(double terms);

/// Rounding may carry attention over packed rows so far, and its gradient where the output has `g`.
at::Tensor attention_error(const Attention& kind, const at::Tensor& packed, const Roundoffs& u);
at::Tensor attention_gradient_error(const Attention& kind, const at::Tensor& packed,
                                    const at::Tensor& g, const Roundoffs& u);
/// The same over the packed keys and values of another sequence; the gradients are those of the
/// queries and of these.
at::Tensor attention_error(const CrossAttention& kind, const at::Tensor& queries,
                           const at::Tensor& others, const Roundoffs& u);
std::array<at::Tensor, 2> attention_gradient_error(const CrossAttention& kind,
                                                   const at::Tensor& queries,
                                                   const at::Tensor& others, const at::Tensor& g,
                                                   const Roundoffs& u);

/// The same of a contrastive loss over its vectors {B, features}, of its gradients where that of
/// the loss is `upstream`.
struct ContrastErrors {
  at::Tensor loss, scale;
  std::array<at::Tensor, 2> vectors;
};
ContrastErrors contrast_errors(const at::Tensor& first, const at::Tensor& second,
                               const at::Tensor& scale, double upstream, const Roundoffs& u);

/// Computes the call in float64 by the reference, node by node, and how far rounding may carry a
/// device. Tensors are on the host.
GoldenResult golden_result(const OperatorCall& call, const Roundoffs& roundoffs);

}  // namespace heteroperf
