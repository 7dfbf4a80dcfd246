#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "runners/engine/operators/operator_group.hpp"
#include "runners/engine/parameters/rank_share.hpp"
#include "runners/engine/pipeline/step_clock.hpp"
#include "runners/plan/plan.hpp"
#include "runners/plan/staged_graph.hpp"
#include "runners/plan/tensor/row_cuts.hpp"

namespace heteroperf {

class Communicator;

/// The part of a model that a rank runs: the groups of one stage, on its share of every layer.
struct StageModel {
  const ModelGraph& graph;  ///< with this rank's local sizes; outlives the executor
  std::vector<OperatorGroup> groups;
  /// By node: the number of edges that lead from it to other stages.
  std::vector<int> edges_out;
  Recomputation recomputation = Recomputation::none;
  Communicator* tensor_group = nullptr;   ///< shares every layer; null: this rank has them alone
  Communicator* context_group = nullptr;  ///< has parts of the same sequences; null: as above
  const TensorShard* shard = nullptr;     ///< this rank's share; null: all of the model
  std::vector<bool> gradient_is_partial = {};  ///< by node, within the stage
  RowCuts rows = {};                           ///< sequence parallelism; nothing without it
};

/// The whole graph as one stage.
StageModel whole_model(const ModelGraph& graph, at::ScalarType type, Fusion fusion);

/// The stage of `part`, which is one of the parts of `share`. `share` outlives the model.
StageModel stage_model(const RankShare& share, const RankShare::Part& part,
                       const StagedGraph& staged, const Plan& plan, at::ScalarType type,
                       const SharingGroups& groups);

/// Brings tensors into the form in which a tensor-parallel rank keeps them, whole or its own rows
/// (RowCuts), by sums and exchanges over the group. Between stages everything is whole. Without a
/// tensor-parallel group all tensors are kept as they are made. `batch` is the number of samples of
/// the micro-batch.
class TensorForms {
 public:
  /// Time in collectives is noted on `clock`, if there is one. Both outlive the forms.
  TensorForms(const StageModel& model, StepClock* clock) : model_(model), clock_(clock) {}

  /// The kept form of the output of `node`, from the tensor that its operation made. Collective.
  at::Tensor keep(NodeId node, at::Tensor made, std::int64_t batch);
  /// The kept form of a tensor that another stage sent, whole.
  at::Tensor keep_received(NodeId node, at::Tensor whole) const {
    return keeps_rows(node) ? own_rows(whole) : whole;
  }
  /// The whole tensor, for other stages. Collective.
  at::Tensor whole(NodeId node, at::Tensor kept, std::int64_t batch) {
    return keeps_rows(node) ? gather(node, kept, batch) : kept;
  }

  /// The gradient that the operation behind `node` needs, from the sum of the gradients that the
  /// users of the kept form gave. Collective.
  at::Tensor gradient_for_operation(NodeId node, at::Tensor gradient, std::int64_t batch);
  /// This rank's summand of a gradient that another stage sent, whole; undefined: none.
  at::Tensor keep_received_gradient(NodeId node, at::Tensor whole) const;
  /// The whole gradient of a value, for the stage that it came from. Collective.
  at::Tensor whole_gradient(NodeId node, at::Tensor gradient, std::int64_t batch);

  bool works_on_rows(NodeId node) const;

 private:
  bool keeps_rows(NodeId node) const;
  at::Tensor own_rows(const at::Tensor& whole) const;
  at::Tensor gather(NodeId node, const at::Tensor& rows, std::int64_t batch);
  at::Tensor sum(at::Tensor summand, Communicator& group);
  at::Tensor sum_to_rows(const at::Tensor& summand);

  const StageModel& model_;
  StepClock* clock_;
};

}  // namespace heteroperf
