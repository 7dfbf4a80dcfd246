#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runners/engine/parameters/parameter_store.hpp"
#include "runners/engine/pipeline/stage_model.hpp"
#include "runners/engine/pipeline/weight_gradients.hpp"

namespace heteroperf {

/// The score of one evaluated batch.
struct BatchScore {
  double loss = 0;  ///< mean over the batch's targets
  std::uint64_t targets = 0, correct = 0;
};

/// One pass of one group of nodes.
enum class GroupPass { forward, input_gradient, weight_gradient, backward };

/// Is told when the passes of groups begin and end, to time them.
class GroupTimer {
 public:
  virtual ~GroupTimer() = default;
  virtual void begin() = 0;
  /// `group` is the index in StageModel::groups.
  virtual void end(std::size_t group, GroupPass pass) = 0;
};

/// Runs one stage on any number of micro-batches under way, operation by operation as a schedule
/// asks: F, then B and W or both at once (BW), perhaps a RECOMPUTE in between.
///
/// Inside a pass an output is let go after its last consumer, an operator's saved tensors after its
/// gradients, and a gradient after its use. Between passes a micro-batch keeps the tensors that its
/// gradients need and those that other stages have still to take. The first gradient of a parameter
/// in a step overwrites it in the store, the others add.
class StageExecutor {
 public:
  /// Time in tensor-parallel sums is noted on `clock`. All three outlive the executor.
  StageExecutor(StageModel model, std::shared_ptr<WeightGradients> gradients,
                StepClock* clock = nullptr);
  /// A stage by itself, whose gradients stay in the store.
  StageExecutor(StageModel model, ParameterStore& store);
  ~StageExecutor();

  /// Gives the stage a tensor of another stage (a node's output) or the data (of the graph's input
  /// node).
  void put(MicroBatchId micro_batch, NodeId node, at::Tensor value);
  /// `counted`: those of them that are targets and not −1 or NaN; absent: all are.
  void put_targets(MicroBatchId micro_batch, at::Tensor targets,
                   std::optional<std::int64_t> counted = {});
  std::optional<std::int64_t> counted_targets(MicroBatchId micro_batch) const;
  /// The input nodes whose data the stage takes.
  const std::vector<NodeId>& data_inputs() const { return data_inputs_; }
  bool takes_targets() const { return takes_targets_; }
  bool reads_data() const { return takes_targets_ || !data_inputs_.empty(); }
  bool has_loss() const { return has_loss_; }
  /// The stage ends in a loss over a set of micro-batches, which interact() makes.
  bool interacts() const { return set_loss_ != nullptr; }

  /// In the mode and pass of `context`.
  void forward(MicroBatchId micro_batch, const PassContext& context);
  /// Takes an output for one of the edges that lead out of the stage.
  at::Tensor output(MicroBatchId micro_batch, NodeId node);
  /// Makes the losses of a set of micro-batches, which are all forward in this mode, and gives
  /// their score in evaluation. `group`: the ranks that have samples of the set; null: this one has
  /// all. Collective.
  BatchScore interact(std::span<const MicroBatchId> set, Mode mode, Communicator* group);
  /// Mean over the micro-batch's targets; the sum over those that count where not all of them do.
  double loss(MicroBatchId micro_batch);
  /// The same as a tensor {1}, which the device may still be computing.
  const at::Tensor& loss_value(MicroBatchId micro_batch);

  void recompute(MicroBatchId micro_batch);
  /// A gradient that comes back over an edge out, whole. Several of one node are summed.
  void put_gradient(MicroBatchId micro_batch, NodeId node, at::Tensor gradient);
  void input_gradient(MicroBatchId micro_batch);
  void weight_gradient(MicroBatchId micro_batch);
  void backward(MicroBatchId micro_batch);
  /// The gradient of a value that was put, for the stage it came from. Undefined when nothing here
  /// needs it.
  at::Tensor gradient(MicroBatchId micro_batch, NodeId node);

  /// The micro-batch is done: forgets all that is left of it.
  void release(MicroBatchId micro_batch);

  /// The next gradient of each parameter of this stage overwrites.
  void overwrite_gradients() { gradients_->overwrite(written_parameters_); }
  /// The micro-batches whose tensors are kept for gradients (F +1, B −½, W −½, BW −1).
  double held() const;

  /// Runs forward alone, in evaluation mode. Gives the score on the stage of the loss, unless that
  /// is of a set; on others the outputs wait to be taken.
  BatchScore evaluate(MicroBatchId micro_batch);

  /// Running statistics, in the order of the graph.
  Tensors buffers() const;
  /// "<node>.running_mean", in the same order.
  std::vector<std::string> buffer_names() const;
  /// Ordinals of the parameters whose gradients this stage writes, last group first. A parameter of
  /// several groups is there as often.
  const std::vector<std::size_t>& written_parameters() const { return written_parameters_; }
  /// This rank's gradient of a parameter is a summand of its tensor-parallel group's.
  bool gradient_is_summand(std::size_t ordinal) const;

  const StageModel& model() const { return model_; }
  /// From now on every pass of a group is timed; null ends that.
  void time_groups(GroupTimer* timer) { timer_ = timer; }

 private:
  struct Flight;
  enum class Gradients { input, both };

  Flight& flight(MicroBatchId micro_batch);
  Tensors inputs_of(const Flight& flight, std::size_t g) const;
  PassContext context_of(const Flight& flight, std::size_t g) const;
  /// The samples or items that a node is computed for.
  std::int64_t batch_of(const Flight& flight, NodeId node) const;
  /// A tensor of no rows of a node's output.
  at::Tensor nothing_of(NodeId node) const;
  void backward_nothing(Flight& flight, std::size_t g, Gradients which);
  void let_go(Flight& flight, std::size_t g);
  void run_backward(Flight& flight, Gradients which);
  void backward_group(Flight& flight, std::size_t g, Gradients which);
  void weight_gradient_group(Flight& flight, std::size_t g);
  void restore(Flight& flight, std::size_t g);
  void finish_gradients(std::size_t g, GroupPass pass);
  void begin_timing() const;
  void end_timing(std::size_t g, GroupPass pass) const;
  bool loss_group(std::size_t g) const { return has_loss_ && g + 1 == model_.groups.size(); }
  bool keeps_inputs(std::size_t g) const;

  void find_what_is_elsewhere();
  void plan_parameters();
  void plan_releases();

  StageModel model_;
  TensorForms forms_;
  std::shared_ptr<WeightGradients> gradients_;
  std::vector<NodeId> data_inputs_;
  bool has_loss_ = false, takes_targets_ = false;
  SetLoss* set_loss_ = nullptr;  ///< the operator of the last group, where it is one
  std::vector<Tensors> parameters_, parameter_gradients_;  ///< by group
  std::vector<std::vector<std::size_t>> ordinals_;         ///< by group: its parameters
  /// By group: the parameters whose gradient no group behind it in a backward pass writes.
  std::vector<std::vector<std::size_t>> finished_after_;
  std::vector<std::size_t> written_parameters_;
  std::vector<std::vector<NodeId>> released_after_;  ///< by group
  std::vector<bool> inside_;                         ///< by node: made here
  std::vector<bool> elsewhere_;                      ///< by node: samples have none here
  std::vector<bool> needs_gradient_;                 ///< by node
  std::vector<bool> used_here_;                      ///< by node

  IdVector<MicroBatchId, std::unique_ptr<Flight>> flights_;
  std::vector<std::unique_ptr<Flight>> spare_;
  GroupTimer* timer_ = nullptr;
};

}  // namespace heteroperf
