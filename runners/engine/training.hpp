#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "metrics/ops.hpp"
#include "runners/device/host_pool.hpp"
#include "runners/engine/checkpoint/checkpoint.hpp"
#include "runners/engine/products.hpp"
#include "runners/plan/ready/ready_plan.hpp"
#include "workloads/data/data_source.hpp"
#include "workloads/graph/model_graph.hpp"
#include "workloads/recipe.hpp"

namespace heteroperf {

class Communicator;

/// Makes every rank an emulated device: true numbers, on a modelled timeline.
struct Pacing {
  /// The times to which the devices change in mid-run.
  struct Change {
    std::uint64_t from_step = 0;  ///< the first step that takes them
    StageTimes times;
  };

  StageTimes times;
  /// Modelled seconds are stretched by this factor. 0 (`pace=auto`): the second step measures it,
  /// so that all ranks together compute for at most half of the time of the cores.
  double dilation = 0;
  int cores = 1;  ///< the ranks share them
  std::optional<Change> change = {};
};

/// Everything that determines one training. It is the same on every rank of the group, except for
/// the device that computes (`threads`, `gpu`, `clock_offset_ns`).
struct TrainingSpec {
  ModelGraph graph;
  std::shared_ptr<const DataSource> data;
  OptimizerRecipe recipe;
  Precision precision = Precision::fp32;
  /// The plan of all ranks of the group, made ready for `graph`.
  std::shared_ptr<const ReadyPlan> ready;
  std::uint64_t seed = 1;  ///< initial weights, order of samples, dropout masks
  int threads = 1;         ///< intra-operation threads of this rank
  std::optional<int> gpu;  ///< index of the CUDA device that computes; none: the host's cores
  double timeout_s = 30;   ///< an instruction that takes longer is reported by the watchdog
  std::int64_t clock_offset_ns = 0;  ///< add to this rank's clock to get that of rank 0
  std::optional<Pacing> pacing;
  /// The ways of its products; null: LibTorch's.
  std::shared_ptr<const ProductChoices> products;
  /// The values that it begins with, drawn or restored, are moved by as much as rounding may. Who
  /// compares the losses with those of the same training learns how far rounding alone carries
  /// them.
  bool moved = false;

  const Plan& plan() const { return ready->plan; }
  /// Makes a plan ready for the graph, the precision and the optimizer that stand here.
  void use_plan(Plan plan) {
    const TrainingTask task{graph, precision, recipe.kind};
    ready = std::make_shared<const ReadyPlan>(task, std::move(plan));
  }
};

/// Wall time of one step of this rank; the parts add up to `t_end_ns - t_start_ns`.
///
/// A wait for a message is bubble until its sender sent it, exposed communication after that. Sums
/// over replicas and tensor-parallel ranks are exposed where this rank waits for them.
struct TimeSplit {
  double compute_s = 0, communication_s = 0, bubble_s = 0, data_s = 0, other_s = 0;
};

/// A rank's step for one component of the model.
struct ComponentStep {
  /// In its passes. Absent where a stage has several components and the host does not compute.
  std::optional<double> compute_s = 0;
  std::uint64_t border_bytes = 0;  ///< sent from it to other components
};

/// One optimizer step, equal on every rank of the group except for times and bytes.
struct StepReport {
  std::uint64_t step = 0;     ///< 0-based
  std::uint64_t samples = 0;  ///< over the whole group
  /// Their images, where samples have any number of them.
  std::optional<std::uint64_t> images = {};
  double loss = 0;           ///< mean over the group's targets; may be NaN or infinite
  double gradient_norm = 0;  ///< before clipping, over the averaged gradient
  double learning_rate = 0;
  std::int64_t t_start_ns = 0, t_end_ns = 0;  ///< steady clock of this process
  TimeSplit split;
  std::vector<ComponentStep> components;  ///< as components_of(); none where the model has but one
};

/// Over a part of the validation split, on the whole group.
struct EvaluationReport {
  std::uint64_t samples = 0;
  std::optional<std::uint64_t> images = {};  ///< as StepReport has them
  double loss = 0;                           ///< mean over all targets
  double accuracy = 0;                       ///< share of targets whose largest logit is right
  std::int64_t t_start_ns = 0, t_end_ns = 0;
};

/// Tensor operations seen at LibTorch's dispatcher, in the `strict` rules (2 per multiply-add).
struct ObservedOperations {
  Ops executed;
  std::uint64_t calls = 0;           ///< tensor operators seen
  std::vector<std::string> unknown;  ///< tensor operators outside the fixed list, by name
};

/// Strict operations of one step on one rank, by the plan: its share of the score, and what it
/// computes a second time.
struct StepOperations {
  Ops strict, recompute;
  std::vector<StepOperations> components = {};  ///< their parts, as StepReport has them

  /// Adds those of `step`; where both have components, those of each.
  void add(const StepOperations& step) {
    strict += step.strict;
    recompute += step.recompute;
    for (std::size_t i = 0; i < std::min(components.size(), step.components.size()); ++i) {
      components[i].add(step.components[i]);
    }
  }
};

/// A paced rank's real time beside its modelled timeline.
struct PacingReport {
  double dilation = 1;
  /// Operations since the dilation was set, and those of them that were late: they ended more than
  /// 1 % of a step after their modelled end.
  std::uint64_t operations = 0, late = 0;
  double step_s = 0;  ///< modelled length of the last step, undilated
  /// The device's own clock: the modelled time of the last step's passes and of its optimizer, with
  /// the sums of tensor-parallel ranks inside passes.
  double computing_s = 0;
  double worst_lateness_s = 0;  ///< real, over the last step
};

/// The kinds of things that a rank does. Every moment of a step is on exactly one of the lanes up
/// to `other`; the others lie beside them: sums on a thread of their own, and what a device
/// computed by its own clock.
enum class TimeLane {
  compute,
  messages,
  sums,  ///< over replicas and tensor-parallel ranks, where this rank waits for them
  optimizer,
  data,
  waiting,  ///< for a rank that is not ready
  other,
  overlapped_sums,
  overlapped_device
};
constexpr std::array<const char*, 9> value_names(TimeLane) {
  return {"compute",         "messages",         "sums", "optimizer", "data", "waiting", "other",
          "overlapped sums", "overlapped device"};
}

/// A piece of a traced step of this rank.
struct LaneSpan {
  TimeLane lane = TimeLane::other;
  std::int32_t instruction = -1;  ///< in the program; −1: of none
  std::int64_t start_ns = 0, end_ns = 0;
};

/// A model in training on one group of ranks, by a plan: every rank runs its program of the plan's
/// schedule. All calls are collective and made in the same order.
class TrainingSession {
 public:
  virtual ~TrainingSession() = default;

  /// Runs one step: every micro-batch forward and backward, the sums of the gradients, the update.
  /// A non-finite loss leaves the weights untouched and is reported, not thrown: the caller
  /// decides.
  /// With `observed` the dispatcher is observed on this rank.
  virtual StepReport step(ObservedOperations* observed = nullptr) = 0;
  /// Mean loss and accuracy over `samples` of the validation split from `first` on (up to its end
  /// when fewer are left).
  virtual EvaluationReport evaluate(std::uint64_t samples, std::uint64_t first = 0) = 0;

  virtual StepOperations operations() const = 0;
  /// From now on every step appends where its time went, in order, those that lie beside it last;
  /// null: no step does, and nothing is kept. `lanes` outlives these steps.
  virtual void trace_to(std::vector<LaneSpan>* lanes) = 0;
  /// Has no value on a device that is not paced.
  virtual std::optional<PacingReport> pacing() const = 0;

  /// The peak, over the last step, of the tensors that this rank kept for gradients, in activations
  /// of a micro-batch of its share. It is counted where they are held and equals the number that
  /// the schedule's validator gives (MemoryPeaks::memory).
  virtual double peak_activations() const = 0;

  /// 32 hexadecimal digits over the bits of this rank's parameters.
  virtual std::string parameter_fingerprint() const = 0;
  /// The tensors of this rank (c10 allocator); on a device those in its memory.
  virtual MemoryUse memory() const = 0;
  /// Gives the host memory that is kept for the next step back to the system. Until the next call
  /// the session holds parameters, gradients, optimizer states and statistics alone.
  virtual void rest() = 0;

  /// Writes parameters, optimizer states, running statistics and position to the folder `folder`
  /// ("<run>/checkpoints/step-120", not there yet), between two steps. Throws SystemError on every
  /// rank when one cannot write; the training can go on then, and older checkpoints are whole.
  virtual CheckpointReport save(const std::string& folder) = 0;
  /// Goes on from a checkpoint, whatever plan and rank count it was saved with. Before the first
  /// step; the next StepReport has the number of steps done. Throws UserError for a checkpoint that
  /// is broken or has another graph, other types or other tensors.
  virtual void restore(const std::string& folder) = 0;
  /// Goes on from the state of `previous`, a session of the same training on the same ranks under
  /// another plan, which is between two steps and stays as it is: parameters and optimizer states
  /// move between the ranks bit by bit, running statistics as save() and restore() carry them.
  /// Before the first step.
  virtual MoveReport take_over(TrainingSession& previous) = 0;
};

}  // namespace heteroperf
