#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runners/engine/parameters/parameter_store.hpp"
#include "runners/engine/pipeline/gradient_slots.hpp"
#include "runners/engine/pipeline/stage_model.hpp"
#include "runners/engine/pipeline/tensor_forms.hpp"

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

/// Runs one stage on any number of micro-batches under way, operation by operation as a schedule
/// asks: F, then B and W or both at once (BW), perhaps a RECOMPUTE in between.
///
/// Inside a pass an output is let go after its last consumer, what an operator saved after its
/// gradients, and a gradient after its use. Between passes a micro-batch keeps what its gradients
/// need and what other stages still have to take. The first gradient of a parameter in a step
/// overwrites it in the store, the others add.
class StageExecutor {
 public:
  /// By ordinal of the store: whether the gradient was written since it was to be overwritten.
  /// Stages of one rank share it, as they may share a tied weight.
  using Written = std::vector<bool>;
  StageExecutor(StageModel model, ParameterStore& store,
                std::shared_ptr<Written> written = nullptr);
  ~StageExecutor();

  /// What the stage reads of others: the data (of the graph's input node) or their outputs.
  void put(int micro_batch, NodeId node, at::Tensor value);
  void put_targets(int micro_batch, at::Tensor targets);
  bool takes_data() const { return takes_data_; }
  bool takes_targets() const { return takes_targets_; }

  void forward(int micro_batch, const PassContext& context);
  /// An output for one of its edges out.
  at::Tensor output(int micro_batch, NodeId node);
  /// Mean over the micro-batch's targets.
  double loss(int micro_batch) const;
  /// The same as a tensor {1}, which the device may still be computing.
  const at::Tensor& loss_value(int micro_batch) const;

  void recompute(int micro_batch);
  /// A gradient that comes back over an edge out, whole; they are summed.
  void put_gradient(int micro_batch, NodeId node, at::Tensor gradient);
  void input_gradient(int micro_batch);
  void weight_gradient(int micro_batch);
  void backward(int micro_batch);
  /// Of a value that was put, for the stage it came from. Undefined when nothing here needs it.
  at::Tensor gradient(int micro_batch, NodeId node);

  /// The micro-batch is done: forgets all that is left of it.
  void release(int micro_batch);

  /// The next gradient of each parameter of this stage overwrites.
  void overwrite_gradients();
  /// Called with the ordinal of each parameter of a group once the group has added a micro-batch's
  /// gradient, during that pass; a tied weight's as often as groups use it.
  void on_gradient(std::function<void(std::size_t ordinal)> written) {
    on_gradient_ = std::move(written);
  }
  /// What is kept for gradients, in micro-batches (F +1, B −½, W −½, BW −1).
  double held() const;

  /// Forward alone, in evaluation mode. The score on the stage of the loss; on others the outputs
  /// wait to be taken.
  BatchScore evaluate(int micro_batch);

  /// Running statistics, in the order of the graph.
  Tensors buffers() const;
  /// "<node>.running_mean", in the same order.
  std::vector<std::string> buffer_names() const;
  /// Ordinals of the store that this stage writes gradients of, last group first.
  const std::vector<std::size_t>& written_parameters() const { return written_parameters_; }
  /// Whether this rank's gradient of a parameter is a summand of its tensor-parallel group's.
  bool gradient_is_summand(std::size_t ordinal) const;

  enum class Profile { off, on };
  void profile(Profile how) { profile_ = how; }
  const std::vector<GroupTime>& times() const { return times_; }
  at::ScalarType type() const { return type_; }
  /// Where the time in tensor-parallel sums goes from now on; null: nowhere.
  void keep_time_on(StepClock* clock) { forms_.keep_time_on(clock); }

 private:
  struct Flight;
  enum class Gradients { input, weight, both };

  Flight& flight(int micro_batch);
  const Flight& flight(int micro_batch) const;
  void run_forward(Flight& flight);
  at::Tensor run_group(Flight& flight, std::size_t g);
  void let_go(Flight& flight, std::size_t g);
  void run_backward(Flight& flight, Gradients which);
  void backward_group(Flight& flight, std::size_t g, Gradients which);
  void weight_gradient_group(Flight& flight, std::size_t g);
  void restore(Flight& flight, std::size_t g);
  Accumulation prepare_gradients(std::size_t g);
  void tell_gradients(std::size_t g) const;
  bool loss_group(std::size_t g) const { return takes_targets_ && g + 1 == model_.groups.size(); }
  bool keeps_inputs(std::size_t g) const;

  void plan_parameters();
  void plan_releases();
  void plan_gradients();
  void plan_profile();

  StageModel model_;
  TensorForms forms_;
  ParameterStore& store_;
  at::ScalarType type_;
  bool takes_data_ = false, takes_targets_ = false;
  std::vector<Tensors> parameters_, gradients_;     ///< by group
  std::vector<std::vector<std::size_t>> ordinals_;  ///< by group, of its parameters in the store
  std::vector<std::size_t> written_parameters_;
  std::vector<std::vector<NodeId>> released_after_;  ///< by group
  std::vector<bool> inside_;                         ///< by node: made here
  std::vector<bool> backward_runs_;                  ///< by group
  std::vector<bool> needs_gradient_;                 ///< by node
  std::vector<bool> used_here_;                      ///< by node
  std::shared_ptr<Written> gradient_written_;
  std::function<void(std::size_t)> on_gradient_;

  std::vector<std::unique_ptr<Flight>> flights_;  ///< by micro-batch
  std::vector<std::unique_ptr<Flight>> spare_;
  Profile profile_ = Profile::off;
  std::vector<GroupTime> times_;
  std::vector<std::size_t> time_of_group_;
};

}  // namespace heteroperf
