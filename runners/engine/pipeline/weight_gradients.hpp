#pragma once

#include <cstddef>
#include <vector>

#include "metrics/base/error.hpp"
#include "runners/engine/gradients/gradient_reducer.hpp"
#include "runners/engine/operators/operator.hpp"
#include "runners/engine/parameters/parameter_store.hpp"
#include "runners/engine/pipeline/step_clock.hpp"

namespace heteroperf {

/// The gradients of a rank's parameters during a step, on their way from the buffers that operators
/// write to the sums over the replicas. The stages of one rank share it, as they may share a tied
/// weight.
///
/// Order of calls: begin_step(); for every pass that gives weight gradients begin_pass(), then for
/// every operation prepare(), and finish() for the parameters that it was the last of its stage to
/// write. Parameters are named by their ordinal in the store.
class WeightGradients {
 public:
  /// Without a reducer gradients stay on this rank. Sums of summands are noted on `clock`.
  explicit WeightGradients(ParameterStore& store, GradientReducer* reducer = nullptr,
                           StepClock* clock = nullptr);

  ParameterStore& store() { return store_; }

  /// This rank's gradient of a parameter is, in one more stage, a summand of that of `group`, the
  /// stage's tensor-parallel ranks, which outlives the gradients. Before the first step.
  void add_summand(std::size_t ordinal, Communicator& group) {
    HETEROPERF_EXPECT(groups_[ordinal] == nullptr || groups_[ordinal] == &group);
    groups_[ordinal] = &group;
    ++summands_[ordinal];
  }

  /// All gradients are overwritten by those that come next.
  void begin_step();
  /// A pass of a stage that writes `ordinals` begins. `last`: it is the stage's last of this step,
  /// so its gradients are final.
  void begin_pass(const std::vector<std::size_t>& ordinals, bool last);
  /// The next gradient of each of these parameters overwrites.
  void overwrite(const std::vector<std::size_t>& ordinals);

  /// An operation is about to write `gradients`, those of `ordinals`. Returns the way in which all
  /// of them are to be written.
  Accumulation prepare(const std::vector<std::size_t>& ordinals, const Tensors& gradients);
  /// The gradient of a micro-batch is in the parameter's buffer. It is collected (in bf16), and in
  /// the last pass of the step summed over the tensor-parallel group, where it is a summand, and
  /// told to the reducer.
  void finish(std::size_t ordinal);

 private:
  ParameterStore& store_;
  GradientReducer* reducer_;
  StepClock* clock_;
  bool last_pass_ = false;
  std::vector<bool> written_;                  ///< since the gradient was to be overwritten
  std::vector<bool> collected_;                ///< in this step
  std::vector<int> summands_, summands_left_;  ///< in all stages; those that are still to come
  std::vector<Communicator*> groups_;          ///< over which a gradient is summed; null: none
};

}  // namespace heteroperf
