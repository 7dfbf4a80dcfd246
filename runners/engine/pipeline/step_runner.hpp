#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runners/engine/gradients/gradient_reducer.hpp"
#include "runners/engine/parameters/optimizer.hpp"
#include "runners/engine/pipeline/paced_timeline.hpp"
#include "runners/engine/pipeline/rank_stages.hpp"
#include "runners/engine/pipeline/step_clock.hpp"
#include "runners/engine/pipeline/watchdog.hpp"
#include "runners/engine/training.hpp"

namespace heteroperf {

/// Runs training steps on one rank: the instructions of its program of the plan in their order, as
/// far as they are of its stages, the update at OPT_STEP, and the agreement of all ranks on loss
/// and gradient norm.
class StepRunner {
 public:
  /// All references outlive the runner.
  StepRunner(const TrainingSpec& spec, const RankShare& share, Communicator& world,
             RankStages& stages, GradientReducer& reducer, Optimizer& optimizer,
             Accelerator* accelerator);

  /// Runs step number `step`. Collective. An error is thrown on, after rank and instruction were
  /// named on stderr.
  StepReport run(std::uint64_t step);
  /// See TrainingSession.
  void trace_to(std::vector<LaneSpan>* lanes) {
    lanes_ = lanes;
    reducer_.queue().trace_to(lanes == nullptr ? nullptr : &overlapped_);
  }
  std::optional<PacingReport> pacing() const {
    return timeline_ ? std::optional(timeline_->report()) : std::nullopt;
  }
  double peak_activations() const { return peak_held_; }

 private:
  using Handler = void (StepRunner::*)(const Instruction&);
  /// The sums over all ranks on which an update depends.
  struct Agreement {
    double loss = 0, square_sum = 0;
    double targets = 0;          ///< those that count; 0 where all do
    std::int64_t latest_ns = 0;  ///< the last rank's arrival
  };

  void load(const Instruction& i);
  void forward(const Instruction& i);
  void backward(const Instruction& i);
  void recompute(const Instruction& i);
  void note_loss(const Instruction& i);
  void exchange(const Instruction& i);
  void receive_near(const Instruction& i);
  void reduce(const Instruction& i);
  void update(const Instruction& i);
  void nothing(const Instruction&) {}
  void interact(const Instruction& i);

  std::vector<Handler> program_handlers() const;
  void begin_step(std::uint64_t step);
  StepReport finish_step();
  std::string where(std::size_t instruction) const;
  PassContext context(const RankStage& stage, MicroBatchId micro_batch) const;
  void begin_computation();
  void end_computation(RankStage& stage, const Instruction& i);
  void note_components();
  void load_data(RankStage& stage, MicroBatchId micro_batch);
  void add_loss(RankStage& stage, MicroBatchId micro_batch);
  void take_inputs(RankStage& stage, MicroBatchId micro_batch);
  void take_gradients(RankStage& stage, MicroBatchId micro_batch);
  void hand_on_gradients(RankStage& stage, MicroBatchId micro_batch);
  Tensors take(EdgeId edge, Crossing what, MicroBatchId micro_batch);
  void hand_on(EdgeId edge, Crossing what, MicroBatchId micro_batch, Tensors tensors);
  Agreement agree(const Agreement& contribution);

  const TrainingSpec& spec_;
  const RankShare& share_;
  const std::vector<Instruction>& program_;
  std::vector<Handler> handlers_;  ///< by instruction
  Communicator& world_;
  RankStages& stages_;
  GradientReducer& reducer_;
  Optimizer& optimizer_;
  Accelerator* accelerator_;  ///< null: the host computes
  StepClock& clock_;
  std::vector<LaneSpan>* lanes_ = nullptr;  ///< receive the steps to come; null: none are traced
  std::vector<LaneSpan> overlapped_;        ///< sums of a traced step on the reducer's own thread
  std::optional<PacedTimeline> timeline_;
  DeviceTimes device_times_;

  StepReport report_;  ///< the step under way
  double loss_ = 0, targets_ = 0, peak_held_ = 0;
  double compute_before_s_ = 0;                     ///< in this step, before the pass under way
  std::vector<std::uint64_t> border_bytes_before_;  ///< by component, before the step
  at::Tensor device_loss_;                          ///< {1}, float64
  Watchdog watchdog_;
};

}  // namespace heteroperf
