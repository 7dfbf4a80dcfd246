// Builds the stages of one rank: the groups of each, the edges, the data, the gradients that the
// stages share, and the group of ranks that share layers.
#include "runners/engine/pipeline/rank_stages.hpp"

#include <utility>

#include "metrics/base/error.hpp"
#include "metrics/base/id.hpp"
#include "runners/comm/communicator.hpp"
#include "runners/device/accelerator.hpp"
#include "runners/engine/operators/kernel_launch.hpp"
#include "workloads/graph/graph_counts.hpp"

namespace heteroperf {
namespace {

/// The first sample, within a micro-batch, of a stage's replica.
std::int64_t first_of_replica(const Plan& plan, const RankRole::Part& role) {
  const auto& replicas = plan.stages[role.stage].replicas;
  std::int64_t first = 0;
  for (ReplicaId r; r < role.replica; ++r) {
    if (replicas[r].direction == replicas[role.replica].direction) first += replicas[r].micro_batch;
  }
  return first;
}

}  // namespace

RankStages::RankStages(const TrainingSpec& spec, const RankShare& share, Communicator& world,
                       Communicator* devices, ParameterStore& store, GradientReducer& reducer,
                       Accelerator* accelerator)
    : spec_(spec),
      share_(share),
      accelerator_(accelerator),
      loader_(spec.data, store.operator_type(), spec.seed),
      edges_(spec, share, world, store.operator_type(), store.device()) {
  if (has_tensor_parallelism(spec.plan())) {
    const RankRole::Part& role = share.parts.front().role;
    const StageReplica& replica = spec.plan().stages[role.stage].replicas[role.replica];
    Communicator& sums = devices != nullptr ? *devices : world;
    tensor_group_ = sums.split(replica.ranks.front().value(), role.tensor_index);
  }
  gradients_ = std::make_shared<WeightGradients>(store, &reducer, tensor_group_.get(), &clock_);
  for (const RankShare::Part& part : share.parts) {
    const Segment& segment = spec.ready->schedule.graph.segments[part.role.segment];
    auto stage =
        std::make_unique<RankStage>(part,
                                    stage_model(share, part, spec.ready->staged, spec.plan(),
                                                store.operator_type(), tensor_group_.get()),
                                    gradients_, &clock_);
    stage->number = stages_.size();
    stage->edges = edges_.of(part.role.segment);
    stage->activation = segment.activation;
    stage->samples = spec.plan().stages[part.role.stage].replicas[part.role.replica].micro_batch;
    stage->first_sample = first_of_replica(spec.plan(), part.role);
    stage->micro_batches = segment.micro_batches;
    for (std::size_t ordinal = 0; ordinal < store.count(); ++ordinal) {
      if (stage->executor.gradient_is_summand(ordinal)) gradients_->add_summand(ordinal);
    }
    stages_.push_back(std::move(stage));
  }
}

RankStage& RankStages::of(const Instruction& instruction) {
  for (const std::unique_ptr<RankStage>& stage : stages_) {
    if (stage->role().segment == instruction.segment) return *stage;
  }
  HETEROPERF_EXPECT(!"an instruction of a segment that is on another rank");
  return *stages_.front();
}

std::uint64_t RankStages::first_sample(const RankStage& stage, MicroBatchId micro_batch) const {
  return static_cast<std::uint64_t>(micro_batch.value() * spec_.plan().micro_batch_samples() +
                                    stage.first_sample);
}

Batch RankStages::training_batch(const RankStage& stage, std::uint64_t step,
                                 MicroBatchId micro_batch) const {
  const std::uint64_t position =
      step * spec_.plan().samples_per_step() + first_sample(stage, micro_batch);
  return on_device(loader_.train(position, stage.samples));
}

Batch RankStages::validation_batch(std::uint64_t first, std::int64_t count) const {
  return on_device(loader_.validation(first, count));
}

// Indices are checked here: kernels on a device cannot refuse one.
Batch RankStages::on_device(Batch batch) const {
  if (accelerator_ == nullptr) return batch;
  const std::int64_t classes = spec_.data->spec().classes;
  check_indices(batch.targets, classes, "target");
  if (batch.sample.scalar_type() == at::kLong) check_indices(batch.sample, classes, "token");
  return {accelerator_->bring(canonical(batch.sample)), accelerator_->bring(batch.targets)};
}

// The data are not made by a stage: it hands its sample on.
Tensors RankStages::outputs(RankStage& stage, EdgeId edge, MicroBatchId micro_batch) const {
  Tensors tensors;
  for (const NodeId node : edges_.nodes(edge, Crossing::activation)) {
    tensors.push_back(node == spec_.graph.input() ? stage.sample
                                                  : stage.executor.output(micro_batch, node));
  }
  return tensors;
}

std::vector<RankStages::Buffers> RankStages::buffers() const {
  std::vector<Buffers> all;
  for (const std::unique_ptr<RankStage>& stage : stages_) {
    const RankRole::Part& role = stage->role();
    Buffers& buffers = all.emplace_back(Buffers{role.stage, role.replica, role.tensor_index, {}});
    const std::vector<std::string> names = stage->executor.buffer_names();
    const Tensors tensors = stage->executor.buffers();
    for (std::size_t i = 0; i < names.size(); ++i) buffers.named.push_back({names[i], tensors[i]});
  }
  return all;
}

// Full recomputation runs every node twice, selective recomputation the attention alone.
StepOperations RankStages::operations() const {
  StepOperations result;
  for (const std::unique_ptr<RankStage>& stage : stages_) {
    const ModelGraph& graph = share_.shards[stage->share.shard].graph;
    const auto samples = static_cast<std::uint64_t>(stage->samples) *
                         static_cast<std::uint64_t>(stage->micro_batches);
    const Recomputation again = spec_.plan().stages[stage->role().stage].recomputation;
    for (const NodeId node : stage->share.nodes) {
      const StrictOps ops = strict_node_ops(graph, node);
      result.strict += ops.train() * samples;
      const bool attention = std::holds_alternative<Attention>(graph.node(node).attributes);
      if (again == Recomputation::full || (again == Recomputation::selective && attention)) {
        result.recompute += ops.forward * samples;
      }
    }
  }
  return result;
}

}  // namespace heteroperf
