#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "runners/engine/kernels/kernel_table.hpp"
#include "workloads/graph/model_graph.hpp"
#include "workloads/recipe.hpp"

namespace heteroperf {

class Communicator;
using Tensors = std::vector<at::Tensor>;

/// LibTorch's element type of a precision.
at::ScalarType scalar_type(Precision precision);

enum class Mode { train, evaluate };
/// A second forward that only rebuilds `saved`: running statistics stay as they are.
enum class Pass { first, recomputation };

/// The pass that an operator runs in.
struct PassContext {
  Mode mode = Mode::train;
  Pass pass = Pass::first;
  Accumulation accumulation = Accumulation::overwrite;
  std::uint64_t seed = 0, step = 0;
  /// The number, within the step, of this micro-batch's first sample, and of its first item.
  std::uint64_t first_sample = 0, first_item = 0;
  std::int32_t node = 0;  ///< in the graph; dropout masks depend on it
  /// Multiplies the loss gradient: 1 / (targets of the global batch / targets of this micro-batch);
  /// 1 where the loss is a sum, which the update divides.
  double loss_scale = 1.0;
  /// Absent where all targets of this micro-batch count; their losses' mean is made then. Else the
  /// sum over those that count is divided by this: their number, or 1 for the sum itself.
  std::optional<std::int64_t> targets = {};
};

/// Where an operator puts the gradients of its inputs.
///
/// A tensor with several consumers receives several gradients. When one is already there and nobody
/// else holds it, `reusable(i)` offers it so that a fused kernel may add in place; `put(i, g)`
/// adds or stores.
class GradientSink {
 public:
  virtual ~GradientSink() = default;
  /// False for inputs that need no gradient (the sample): skip their products.
  virtual bool wanted(std::size_t input) const = 0;
  /// The gradient already there if it may be written in place, else an undefined tensor.
  virtual at::Tensor reusable(std::size_t input) = 0;
  /// Adds `gradient` to input `input`'s. Takes ownership; a tensor offered by reusable() and
  /// updated in place is put back with `replace`.
  virtual void put(std::size_t input, at::Tensor gradient) = 0;
  virtual void replace(std::size_t input, at::Tensor gradient) = 0;
};

/// One call of a backward pass, B, W or both.
struct BackwardPass {
  const at::Tensor& output_gradient;
  const Tensors& parameters;  ///< none in W alone
  const Tensors& saved;
  const PassContext& context;
  GradientSink* sink;            ///< null in W alone; operators without parameters always have one
  Tensors* parameter_gradients;  ///< null in B alone

  bool wants(std::size_t input) const { return sink != nullptr && sink->wanted(input); }
};

/// One node kind's mathematics on ATen kernels, without an autograd tape.
///
/// Tensors carry the batch as first dimension: {B, shape…} with the node's per-sample shape.
/// Parameters and their gradients come in the order of Node::parameters (a tied linear gets the
/// embedding's weight). An operator is stateless between passes except for running statistics
/// (`buffers`), which forward updates in train mode unless `context` says recomputation.
class Operator {
 public:
  virtual ~Operator() = default;

  /// Returns the output; leaves in `saved` exactly what the backward passes need.
  virtual at::Tensor forward(const Tensors& inputs, const Tensors& parameters, Tensors& saved,
                             const PassContext& context) = 0;
  /// B: gradients of the inputs from the gradient of the output.
  void input_gradient(const at::Tensor& output_gradient, const Tensors& parameters,
                      const Tensors& saved, const PassContext& context, GradientSink& sink) {
    gradients({output_gradient, parameters, saved, context, &sink, nullptr});
  }
  /// W: writes or adds (context.accumulation) into `parameter_gradients`, preallocated, same shapes
  /// as the parameters.
  void weight_gradient(const at::Tensor& output_gradient, const Tensors& saved,
                       const PassContext& context, Tensors& parameter_gradients) {
    if (parameter_gradients.empty()) return;
    gradients({output_gradient, {}, saved, context, nullptr, &parameter_gradients});
  }
  /// Both at once, which pays where they share work.
  void backward(const at::Tensor& output_gradient, const Tensors& parameters, const Tensors& saved,
                const PassContext& context, GradientSink& sink, Tensors& parameter_gradients) {
    gradients({output_gradient, parameters, saved, context, &sink, &parameter_gradients});
  }
  /// Non-trained state: running mean and variance. Empty for most.
  virtual Tensors buffers() const { return {}; }

 private:
  /// Makes the gradients that the pass asks for; one of the two kinds at least.
  virtual void gradients(const BackwardPass& pass) = 0;
};

/// The samples of one micro-batch in a set: what their forward pass made, and what their backward
/// pass will need.
struct SetPass {
  const Tensors& inputs;
  Tensors& saved;
};
struct SetScores {
  Tensors losses;    ///< by pass, {1}: the mean over its samples
  at::Tensor right;  ///< {samples of all passes}, in evaluation: this one's own is the nearest
};

/// A loss in which each sample is held against all of a set, which may be larger than a micro-batch
/// and lie on several ranks. The backward passes are those of any operator, by micro-batch.
class SetLoss : public Operator {
 public:
  /// The forward pass of a whole set. `group`: the ranks that have samples of it, some perhaps no
  /// pass; null: all are here. Collective.
  virtual SetScores forward_set(std::span<SetPass> passes, const Tensors& parameters, Mode mode,
                                Communicator* group) = 0;

  /// Where a micro-batch is a set of its own.
  at::Tensor forward(const Tensors& inputs, const Tensors& parameters, Tensors& saved,
                     const PassContext& context) final {
    SetPass pass{inputs, saved};
    return forward_set({&pass, 1}, parameters, context.mode, nullptr).losses.front();
  }
};

/// The memory format in which parameter `index` of a node, and its gradient, is used without a
/// copy: channels_last ({out, kh, kw, in} in memory) for the weight of an ungrouped conv2d,
/// contiguous for all others. A tensor in another format gives the same result, slower: conv2d on
/// small images is two to three times as slow when every pass reorders its weights.
at::MemoryFormat parameter_format(const Node& node, std::size_t index);

/// The operator of a graph's node for tensors of `type`. Throws UserError when there is none.
std::unique_ptr<Operator> make_operator(const ModelGraph& graph, NodeId node, at::ScalarType type);

}  // namespace heteroperf
