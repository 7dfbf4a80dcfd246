#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "runners/engine/operators/operator.hpp"

namespace heteroperf {

/// Values of `type` in [-1, 1], a pure function of the seed (ATen's generator is never used).
at::Tensor random_tensor(at::IntArrayRef sizes, at::ScalarType type, std::uint64_t seed);
/// int64 in [0, bound).
at::Tensor random_indices(at::IntArrayRef sizes, std::int64_t bound, std::uint64_t seed);
/// {batch, shape…}
std::vector<std::int64_t> batched(std::int64_t batch, const Shape& shape);
/// A batch for an input node: images of `type`, or indices below the embedding's vocabulary.
at::Tensor random_input(const ModelGraph& graph, NodeId input, std::int64_t batch,
                        at::ScalarType type, std::uint64_t seed);
/// The same for the only input node.
at::Tensor random_sample(const ModelGraph& graph, std::int64_t batch, at::ScalarType type,
                         std::uint64_t seed);
/// Targets for the graph's loss: classes, or numbers of `type`. The `uncounted` first rows are
/// without one.
at::Tensor random_targets(const ModelGraph& graph, std::int64_t batch, std::uint64_t seed,
                          std::int64_t uncounted = 0);

/// max|a − b| / max|b|; infinite when shapes differ or a value is not finite.
double relative_error(const at::Tensor& a, const at::Tensor& b);

/// One node by LibTorch's differentiable functions. `parameters` in the order an operator takes
/// them (a tied linear: the embedding's weight first); cross_entropy takes the targets as last
/// input. `running` (mean, variance) is used and updated by batch_norm.
at::Tensor reference_output(const ModelGraph& graph, NodeId node, const Tensors& inputs,
                            const Tensors& parameters, Tensors& running,
                            const PassContext& context);

/// A whole ModelGraph by LibTorch's functions and its autograd tape: what operators, groups and
/// trainers are compared with. Parameters are leaves that require gradients.
class ReferenceModel {
 public:
  /// Random parameters: norm weights around 1, all others small enough for values to stay of
  /// order 1 through many layers.
  ReferenceModel(const ModelGraph& graph, at::ScalarType type, std::uint64_t seed);

  /// `index` in Node::parameters: a tied weight is found at the embedding that owns it.
  const at::Tensor& parameter(NodeId node, std::size_t index) const;
  /// Undefined before the first backward().
  at::Tensor gradient(NodeId node, std::size_t index) const;
  void zero_gradients();

  /// The loss {1} or, in a graph without one, the last node's output. Every node's output stays
  /// readable until the next call.
  at::Tensor forward(const at::Tensor& sample, const at::Tensor& targets,
                     const PassContext& context);
  void release_outputs() { outputs_.clear(); }
  const at::Tensor& output(NodeId node) const { return outputs_.at(position(node)); }
  /// Mean and variance of a batch_norm.
  const Tensors& running(NodeId node) const { return running_.at(position(node)); }

 private:
  static std::size_t position(NodeId node) { return node.index(); }
  Tensors parameters_of(NodeId node) const;

  const ModelGraph graph_;
  std::vector<Tensors> parameters_, running_;
  Tensors outputs_;
};

}  // namespace heteroperf
