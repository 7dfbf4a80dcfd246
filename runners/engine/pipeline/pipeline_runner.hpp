#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runners/engine/gradients/gradient_reducer.hpp"
#include "runners/engine/parameters/stored_state.hpp"
#include "runners/engine/pipeline/batch_loader.hpp"
#include "runners/engine/pipeline/deployment.hpp"
#include "runners/engine/pipeline/device_times.hpp"
#include "runners/engine/pipeline/paced_timeline.hpp"
#include "runners/engine/pipeline/pipeline_edges.hpp"
#include "runners/engine/pipeline/stage_executor.hpp"
#include "runners/engine/pipeline/step_clock.hpp"
#include "runners/engine/pipeline/watchdog.hpp"
#include "runners/engine/training.hpp"

namespace heteroperf {

/// Runs one rank's program of a plan: one handler per instruction, in the program's order.
///
/// A receive is posted where it stands and waited for by the computation that needs it; a send
/// starts where it stands and never waits. What a buffer of the program holds is let go at its
/// FREE at the latest.
class PipelineRunner {
 public:
  /// Collective over `world`. All references outlive the runner.
  PipelineRunner(const TrainingSpec& spec, const Deployment& deployment, Communicator& world,
                 Communicator* devices, ParameterStore& store, GradientReducer& reducer,
                 Accelerator* accelerator);
  ~PipelineRunner();

  /// `update` is called at OPT_STEP, once all gradients are summed. On failure the error names rank
  /// and instruction.
  void run_step(std::uint64_t step, StepClock& clock, const std::function<void()>& update);
  /// This rank's share of the last step's mean over the global batch. Waits for a device.
  double loss() const;
  /// On a device: of the step under way, to which others may add work of their own.
  DeviceTimes& device_times() { return device_times_; }
  /// The seconds that the device computed in the last step, by its own clock. Waits for it, and
  /// appends the computations to `lanes`, where there are some.
  double device_seconds(std::vector<LaneSpan>* lanes) { return device_times_.finish(lanes); }

  /// Validation samples [first, first + count), at most a micro-batch of the plan: the score of
  /// this rank's share on the stage of the loss, else nothing. Collective.
  BatchScore evaluate(std::uint64_t first, std::int64_t count);
  /// After the last evaluate(): until all that was sent has gone.
  void finish_evaluation() { edges_.drain_evaluation(); }

  /// Running statistics of one stage's copy here, in the order of the graph.
  struct StageBuffers {
    int stage = 0, replica = 0, tensor_index = 0;
    std::vector<NamedBuffer> named;
  };
  std::vector<StageBuffers> buffers() const;
  StepOperations operations() const;
  PacedTimeline* timeline() { return timeline_ ? &*timeline_ : nullptr; }
  const PacedTimeline* timeline() const { return timeline_ ? &*timeline_ : nullptr; }
  /// Of the last step, on a paced device: when the gradients of each stage were there (0 where the
  /// stage is not on this rank), and the stages in the order in which they were reduced.
  const std::vector<double>& reduction_ready_s() const { return reduction_ready_s_; }
  const std::vector<int>& reductions() const { return reductions_; }
  /// Peak of what is kept for gradients, as the validator counts it (MemoryPeaks::memory).
  double peak_held() const { return peak_held_; }

 private:
  struct Part;
  using Handler = void (PipelineRunner::*)(const Instruction&);

  static Handler handler(Op op);
  void load(const Instruction& i);
  void forward(const Instruction& i);
  void input_gradient(const Instruction& i);
  void weight_gradient(const Instruction& i);
  void backward(const Instruction& i);
  void recompute(const Instruction& i);
  void loss(const Instruction& i);
  void send(const Instruction& i);
  void receive(const Instruction& i);
  void reduce_gradient(const Instruction& i);
  void reduce_tied(const Instruction& i);
  void update(const Instruction& i);
  void note_reduction(const Instruction& i);
  void nothing(const Instruction&) {}
  void refuse(const Instruction& i);

  /// `sums`: the world as tensor-parallel sums use it.
  void make_parts(Communicator& sums);
  Part& part_of(const Instruction& i);
  std::size_t number_of(const Part& part) const;
  std::string where(std::size_t instruction) const;
  PassContext context(const Part& part, int micro_batch) const;
  void take_inputs(Part& part, int micro_batch);
  void take_gradients(Part& part, int micro_batch);
  void hand_on_outputs(Part& part, int micro_batch);
  void hand_on_gradients(Part& part, int micro_batch);
  void finish_weights(Part& part, int micro_batch);
  /// A parameter's gradient of one micro-batch is there: the last one lets its sum begin.
  void take_gradient(Part& part, std::size_t ordinal);
  Tensors take(int edge, Crossing what, int micro_batch);
  void hand_on(int edge, Crossing what, int micro_batch, Tensors tensors);
  /// What the part gives over an edge: outputs, or the sample it was given.
  Tensors outputs(Part& part, int edge, int micro_batch);
  template <class Work>
  void compute(Part& part, const Instruction& i, const Work& work);
  double duration_s(const Part& part, Op op) const;
  Batch batch_of(const Part& part, int micro_batch);
  Batch on_device(Batch batch) const;

  const TrainingSpec& spec_;
  const Deployment& deployment_;
  Communicator& world_;
  ParameterStore& store_;
  GradientReducer& reducer_;
  std::unique_ptr<Communicator> tensor_group_;
  BatchLoader loader_;
  PipelineEdges edges_;
  std::vector<std::unique_ptr<Part>> parts_;
  std::shared_ptr<StageExecutor::Written> written_;
  std::vector<bool> collected_;  ///< by ordinal: of a gradient of this step (bf16)
  /// By ordinal: parts whose gradient of it is a summand of the tensor-parallel group's; and those
  /// of this step that are still to come.
  std::vector<int> summands_, summands_left_;
  std::optional<PacedTimeline> timeline_;
  std::vector<double> reduction_ready_s_;  ///< by stage: modelled end of its last gradient here
  std::vector<int> reductions_;            ///< stages in the order of REDUCE_GRAD

  std::uint64_t step_ = 0;
  StepClock* clock_ = nullptr;
  const std::function<void()>* update_ = nullptr;
  double loss_ = 0, peak_held_ = 0, ready_s_ = 0;
  Accelerator* accelerator_;  ///< null: the host computes
  at::Tensor device_loss_;    ///< {1}, float64
  DeviceTimes device_times_;
  Watchdog watchdog_;
};

}  // namespace heteroperf
