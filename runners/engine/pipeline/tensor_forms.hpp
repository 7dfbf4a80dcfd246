#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "runners/engine/pipeline/stage_model.hpp"
#include "runners/engine/pipeline/step_clock.hpp"

namespace heteroperf {

/// How a tensor-parallel rank keeps what a stage computes, whole or its own rows (RowCuts), and the
/// sums and exchanges that lead there. Between stages everything is whole. Without a
/// tensor-parallel group all is kept as it is made. `batch`: samples of the micro-batch.
class TensorForms {
 public:
  /// `model` outlives the forms.
  explicit TensorForms(const StageModel& model) : model_(model) {}

  /// As the stage keeps the output of `node`, from what its operation made. Collective.
  at::Tensor keep(NodeId node, at::Tensor made, std::int64_t batch);
  /// As it keeps what another stage sent, whole.
  at::Tensor keep_received(NodeId node, at::Tensor whole) const;
  /// For other stages. Collective.
  at::Tensor whole(NodeId node, at::Tensor kept, std::int64_t batch);

  /// As the operation that made `node` needs its output's gradient, from the sum of what the users
  /// of the kept form gave. Collective.
  at::Tensor gradient_for_operation(NodeId node, at::Tensor gradient, std::int64_t batch);
  /// This rank's summand of a gradient that another stage sent, whole; undefined: none.
  at::Tensor keep_received_gradient(NodeId node, at::Tensor whole) const;
  /// For the stage the value came from. Collective.
  at::Tensor whole_gradient(NodeId node, at::Tensor gradient, std::int64_t batch);

  bool works_on_rows(NodeId node) const;
  /// Where the time in collectives goes from now on; null: nowhere.
  void keep_time_on(StepClock* clock) { clock_ = clock; }

 private:
  bool keeps_rows(NodeId node) const;
  at::Tensor own_rows(const at::Tensor& whole) const;
  at::Tensor gather(NodeId node, const at::Tensor& rows, std::int64_t batch);
  at::Tensor sum(at::Tensor summand);
  at::Tensor sum_to_rows(const at::Tensor& summand);

  const StageModel& model_;
  StepClock* clock_ = nullptr;
};

}  // namespace heteroperf
