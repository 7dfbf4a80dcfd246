#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runners/engine/parameters/stored_state.hpp"
#include "runners/engine/pipeline/batch_loader.hpp"
#include "runners/engine/pipeline/pipeline_edges.hpp"
#include "runners/engine/pipeline/stage_executor.hpp"
#include "runners/engine/pipeline/step_clock.hpp"
#include "runners/engine/training.hpp"

namespace heteroperf {

class Accelerator;
enum class NoIndex;

/// The components of a model that one stage computes, and the time of each of its groups in a step.
class StageComponents : public GroupTimer {
 public:
  /// By group, the component that it is of (components_of()).
  explicit StageComponents(std::vector<std::size_t> of_group);

  /// Ascending.
  const std::vector<std::size_t>& all() const { return all_; }
  /// The part of the stage's time that a component takes, by the groups' times.
  double share(std::size_t component) const;

  void begin_step() { group_ns_.assign(of_group_.size(), 0); }
  void begin() override;
  void end(std::size_t group, GroupPass pass) override;

 private:
  std::vector<std::size_t> of_group_, all_;
  std::vector<std::int64_t> group_ns_;  ///< in this step
  std::int64_t begin_ns_ = 0;
};

/// One segment of the schedule on this rank: a stage of the plan with the edges that lead to it and
/// away from it.
struct RankStage {
  RankStage(const RankShare::Part& part, StageModel model, StageComponents of_components,
            std::shared_ptr<WeightGradients> gradients, StepClock* clock)
      : share(part),
        components(std::move(of_components)),
        executor(std::move(model), std::move(gradients), clock) {
    if (components.all().size() > 1) executor.time_groups(&components);
  }

  const RankShare::Part& share;
  StageComponents components;
  StageExecutor executor;
  std::size_t number = 0;  ///< in RankShare::parts
  PipelineEdges::OfSegment edges;
  double activation = 1;        ///< one micro-batch kept here, in the unit of the schedule's memory
  std::int64_t samples = 1;     ///< per micro-batch, on this replica
  SequencePart sequences = {};  ///< the part of each that is computed here
  double loss_share = 1;        ///< this rank makes so much of the samples' losses
  std::int64_t first_sample = 0;  ///< within a micro-batch
  int micro_batches = 0;          ///< they pass here in a step
  int weights_left = 0;           ///< micro-batches whose weight gradients are missing
  double compute_s = 0;           ///< in the passes of this step

  const RankRole::Part& role() const { return share.role; }
};

/// All that a rank computes of a plan, in training and evaluation: its stages, the data they read,
/// and the edges between them and the stages of other ranks.
class RankStages {
 public:
  /// Collective over `world`. With `devices`, the same ranks over a library of their GPUs,
  /// tensor-parallel sums go through it. All references outlive the stages.
  RankStages(const TrainingSpec& spec, const RankShare& share, Communicator& world,
             Communicator* devices, ParameterStore& store, GradientReducer& reducer,
             Accelerator* accelerator);

  RankStage& of(SegmentId segment);
  const std::vector<std::unique_ptr<RankStage>>& all() const { return stages_; }
  PipelineEdges& edges() { return edges_; }
  /// The number of components that are told apart: 0 where the model has but one.
  std::size_t components() const { return names_.size() > 1 ? names_.size() : 0; }
  WeightGradients& gradients() { return *gradients_; }
  /// Splits the time of the step under way; collectives inside a stage note theirs.
  StepClock& clock() { return clock_; }

  /// Chooses the samples of a training step.
  void begin_step(std::uint64_t step);
  const StepSamples& step_samples() const { return samples_; }
  /// Gives a stage that reads data this replica's samples of a micro-batch of the step.
  void load_training(RankStage& stage, MicroBatchId micro_batch) const;
  /// The same with `count` samples of the validation split.
  void load_validation(RankStage& stage, std::uint64_t first, std::int64_t count,
                       MicroBatchId micro_batch) const;
  /// Makes the losses of a set of micro-batches of a stage that interacts, over its replicas.
  BatchScore interact(RankStage& stage, MicroBatchId first, std::int64_t count, Mode mode);
  /// The number, within a step, of the first of a stage's samples of a micro-batch.
  std::uint64_t first_sample(const RankStage& stage, MicroBatchId micro_batch) const;

  /// The outputs that a stage gives over an edge.
  Tensors outputs(RankStage& stage, EdgeId edge, MicroBatchId micro_batch) const;

  /// Running statistics of one stage's copy here, in the order of the graph.
  struct Buffers {
    StageId stage;
    ReplicaId replica;
    int tensor_index = 0;
    std::vector<NamedBuffer> named;
  };
  std::vector<Buffers> buffers() const;
  /// Strict operations of the step on this rank, in all and by component.
  StepOperations operations() const;
  /// The work of a stage's pass of a micro-batch as a multiple of the usual, which differs from 1
  /// where samples have any number of items.
  double relative_work(const RankStage& stage, MicroBatchId micro_batch) const;

 private:
  std::size_t component_of(NodeId node) const;
  std::uint64_t images_of(const RankStage& stage, MicroBatchId micro_batch) const;
  void split_groups(Communicator& ranks);
  void split_loss_group(Communicator& ranks);
  SharingGroups groups_of(const RankRole::Part& role) const;
  void give(RankStage& stage, MicroBatchId micro_batch, const Batch& samples) const;
  at::Tensor on_device(const at::Tensor& part, const char* what, NoIndex missing) const;

  const TrainingSpec& spec_;
  const RankShare& share_;
  std::vector<std::string> names_;  ///< the model's components
  Accelerator* accelerator_;        ///< null: the host computes
  BatchLoader loader_;
  StepSamples samples_;
  PipelineEdges edges_;
  StepClock clock_;
  /// By their ranks: the groups of this rank that share layers or sequences.
  std::map<std::vector<RankId>, std::unique_ptr<Communicator>> groups_;
  std::unique_ptr<Communicator> loss_group_;  ///< ranks that share a set's samples; null: one
  std::shared_ptr<WeightGradients> gradients_;
  std::vector<std::unique_ptr<RankStage>> stages_;
};

}  // namespace heteroperf
