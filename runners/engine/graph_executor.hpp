#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "runners/engine/gradient_slots.hpp"
#include "runners/engine/operators/operator_group.hpp"
#include "runners/engine/parameter_store.hpp"

namespace heteroperf {

/// What an evaluation of one batch gives.
struct BatchScore {
  double loss = 0;  ///< mean over the batch's targets
  std::uint64_t targets = 0, correct = 0;
};

/// Seconds per kind of group, forward and backward; collected only when asked for.
struct GroupTime {
  std::string kind;  ///< "linear+gelu"
  double forward_s = 0, backward_s = 0;
};

/// Runs a graph on one micro-batch: every operator forward, then every operator backward.
///
/// An output is let go after its last consumer, what an operator saved after its backward, and a
/// gradient after its use. The first micro-batch of a step overwrites the parameter gradients of
/// the store, the others add.
class GraphExecutor {
 public:
  GraphExecutor(const ModelGraph& graph, ParameterStore& store, Fusion fusion);

  /// Loss of the micro-batch; its gradients go to the store. `sample`: {B, …} of the executor's
  /// type or int64, `targets`: int64 {B} or {B, T}.
  double train(const at::Tensor& sample, const at::Tensor& targets, PassContext context);
  /// Forward alone, in evaluation mode.
  BatchScore evaluate(const at::Tensor& sample, const at::Tensor& targets);

  /// Running statistics, in the order of the graph.
  Tensors buffers() const;

  enum class Profile { off, on };
  void profile(Profile how) { profile_ = how; }
  const std::vector<GroupTime>& times() const { return times_; }
  at::ScalarType type() const { return type_; }

 private:
  at::Tensor forward(const at::Tensor& sample, const at::Tensor& targets,
                     const PassContext& context);
  at::Tensor run_group(std::size_t g, const at::Tensor& targets, const PassContext& context);
  void backward(const PassContext& context);
  void backward_group(std::size_t g, at::Tensor gradient, const PassContext& context);
  Accumulation prepare_gradients(std::size_t g, Accumulation micro_batch);
  bool takes_targets(std::size_t g) const { return g + 1 == groups_.size(); }

  void plan_releases();
  void plan_gradients();
  void plan_profile(const ModelGraph& graph);

  std::vector<OperatorGroup> groups_;
  std::vector<Tensors> parameters_, gradients_;      ///< by group
  std::vector<std::vector<std::size_t>> ordinals_;   ///< by group, of its parameters in the store
  std::vector<std::vector<NodeId>> released_after_;  ///< by group
  std::vector<bool> backward_runs_;                  ///< by group
  std::vector<bool> needs_gradient_;                 ///< by node
  std::vector<bool> gradient_written_;               ///< by parameter, in this micro-batch
  NodeId input_;
  at::ScalarType type_;

  std::vector<at::Tensor> values_;  ///< by node
  std::vector<Tensors> saved_;      ///< by group
  GradientSlots slots_{{}};
  Profile profile_ = Profile::off;
  std::vector<GroupTime> times_;
  std::vector<std::size_t> time_of_group_;
};

}  // namespace heteroperf
