// Builds the stages of one rank: the groups of each, the edges, the data, the gradients that the
// stages share, and the group of ranks that share layers.
#include "runners/engine/pipeline/rank_stages.hpp"

#include <algorithm>
#include <utility>

#include "metrics/base/clock.hpp"
#include "metrics/base/error.hpp"
#include "metrics/base/id.hpp"
#include "runners/comm/communicator.hpp"
#include "runners/device/accelerator.hpp"
#include "runners/engine/operators/kernel_launch.hpp"
#include "workloads/graph/graph_counts.hpp"

namespace heteroperf {
namespace {

/// The ranks of one tensor-parallel index that share a replica's sequences, in the order of parts.
std::vector<RankId> sequence_sharers(const PlanStage& stage, ReplicaId replica, int index) {
  const SequencePart& part = stage.replicas[replica].part;
  std::vector<RankId> ranks;
  for (int i = 0; i < part.parts; ++i) {
    const ReplicaId sharer(replica.value() - part.index + i);
    ranks.push_back(stage.replicas[sharer].ranks[index]);
  }
  return ranks;
}

/// All groups of several ranks that share layers or sequences.
std::vector<std::vector<RankId>> sharing_groups(const Plan& plan) {
  std::vector<std::vector<RankId>> groups;
  const auto add = [&](std::vector<RankId> ranks) {
    if (ranks.size() > 1) groups.push_back(std::move(ranks));
  };
  for (const PlanStage& stage : plan.stages) {
    for (const ReplicaId r : stage.replicas.ids()) {
      const StageReplica& replica = stage.replicas[r];
      add(replica.ranks);
      for (int t = 0; t < std::ssize(replica.ranks) && replica.part.index == 0; ++t) {
        add(sequence_sharers(stage, r, t));
      }
    }
  }
  return groups;
}

/// The share of its samples' losses that a rank with a part of their sequences makes.
double loss_share(const TensorShard& shard, NodeId loss) {
  if (shard.is_elsewhere(loss)) return 0;
  return shard.sequence_role[loss.index()] == SequenceRole::part ? 1.0 / shard.part.parts : 1.0;
}

}  // namespace

StageComponents::StageComponents(std::vector<std::size_t> of_group)
    : of_group_(std::move(of_group)), all_(of_group_) {
  std::ranges::sort(all_);
  all_.erase(std::ranges::unique(all_).begin(), all_.end());
  begin_step();
}

double StageComponents::share(std::size_t component) const {
  if (all_.size() == 1) return all_.front() == component ? 1 : 0;
  double own = 0, sum = 0;
  for (std::size_t group = 0; group < of_group_.size(); ++group) {
    const auto ns = static_cast<double>(group_ns_[group]);
    sum += ns;
    if (of_group_[group] == component) own += ns;
  }
  return sum > 0 ? own / sum : 0;
}

void StageComponents::begin() { begin_ns_ = now_ns(); }
void StageComponents::end(std::size_t group, GroupPass /*pass*/) {
  group_ns_[group] += now_ns() - begin_ns_;
}

RankStages::RankStages(const TrainingSpec& spec, const RankShare& share, Communicator& world,
                       Communicator* devices, ParameterStore& store, GradientReducer& reducer,
                       Accelerator* accelerator)
    : spec_(spec),
      share_(share),
      names_(components_of(spec.graph)),
      accelerator_(accelerator),
      loader_(spec.data, store.operator_type()),
      edges_(spec, share, world, store.operator_type(), store.device()) {
  Communicator& ranks = devices != nullptr ? *devices : world;
  split_groups(ranks);
  if (!spec.ready->schedule.graph.interactions.empty()) split_loss_group(ranks);
  gradients_ = std::make_shared<WeightGradients>(store, &reducer, &clock_);
  for (const RankShare::Part& part : share.parts) {
    const Segment& segment = spec.ready->schedule.graph.segments[part.role.segment];
    StageModel model = stage_model(share, part, spec.ready->staged, spec.plan(),
                                   store.operator_type(), groups_of(part.role));
    std::vector<std::size_t> of_group;
    for (const OperatorGroup& group : model.groups) {
      of_group.push_back(component_of(group.nodes.back()));
    }
    auto stage = std::make_unique<RankStage>(
        part, std::move(model), StageComponents(std::move(of_group)), gradients_, &clock_);
    stage->number = stages_.size();
    stage->edges = edges_.of(part.role.segment);
    stage->activation = segment.activation;
    const PlanStage& planned = spec.plan().stages[part.role.stage];
    stage->samples = planned.replicas[part.role.replica].micro_batch;
    stage->sequences = planned.replicas[part.role.replica].part;
    stage->loss_share = loss_share(share.shards[part.shard], part.nodes.back());
    stage->first_sample = planned.first_sample(part.role.replica);
    stage->micro_batches = segment.micro_batches;
    for (std::size_t ordinal = 0; ordinal < store.count(); ++ordinal) {
      if (!stage->executor.gradient_is_summand(ordinal)) continue;
      gradients_->add_summand(ordinal, *groups_of(part.role).tensor);
    }
    stages_.push_back(std::move(stage));
  }
}

std::size_t RankStages::component_of(NodeId node) const {
  return std::ranges::find(names_, spec_.graph.node(node).branch) - names_.begin();
}

// Groups that have no rank in common, or the same ones, are split off together: an even plan needs
// one split, one whose stages have unlike degrees on the same ranks a split for each.
void RankStages::split_groups(Communicator& ranks) {
  const std::vector<std::vector<RankId>> wanted = sharing_groups(spec_.plan());
  std::vector<std::map<RankId, const std::vector<RankId>*>> rounds;
  for (const std::vector<RankId>& group : wanted) {
    const auto fits = [&](const std::map<RankId, const std::vector<RankId>*>& round) {
      return std::ranges::all_of(group, [&](RankId rank) {
        const auto known = round.find(rank);
        return known == round.end() || *known->second == group;
      });
    };
    auto round = std::ranges::find_if(rounds, fits);
    if (round == rounds.end()) round = rounds.emplace(rounds.end());
    for (const RankId rank : group) round->emplace(rank, &group);
  }
  const RankId self = ranks.rank();
  for (const auto& round : rounds) {
    const auto mine = round.find(self);
    const bool alone = mine == round.end();
    const std::vector<RankId> members = alone ? std::vector{self} : *mine->second;
    const auto index = std::ranges::find(members, self) - members.begin();
    auto group = ranks.split(members.front().value(), static_cast<int>(index));
    if (!alone) groups_[members] = std::move(group);
  }
}

// The last stage has the loss. Tensor-parallel ranks hold its inputs alike, so that each sums with
// those of its index; ranks without the stage stay among themselves.
void RankStages::split_loss_group(Communicator& ranks) {
  const auto has_loss = std::ranges::find_if(share_.parts, [&](const RankShare::Part& part) {
    return part.role.stage.value() + 1 == spec_.ready->staged.stages();
  });
  const bool is_member = has_loss != share_.parts.end();
  const int colour = is_member ? 1 + has_loss->role.tensor_index : 0;
  auto group = ranks.split(colour, is_member ? has_loss->role.replica.value() : 0);
  if (is_member && group->size() > 1) loss_group_ = std::move(group);
}

SharingGroups RankStages::groups_of(const RankRole::Part& role) const {
  const PlanStage& stage = spec_.plan().stages[role.stage];
  const auto find = [&](const std::vector<RankId>& ranks) {
    const auto group = groups_.find(ranks);
    return group == groups_.end() ? nullptr : group->second.get();
  };
  return {find(stage.replicas[role.replica].ranks),
          find(sequence_sharers(stage, role.replica, role.tensor_index))};
}

RankStage& RankStages::of(SegmentId segment) {
  for (const std::unique_ptr<RankStage>& stage : stages_) {
    if (stage->role().segment == segment) return *stage;
  }
  HETEROPERF_EXPECT(!"an instruction of a segment that is on another rank");
  return *stages_.front();
}

std::uint64_t RankStages::first_sample(const RankStage& stage, MicroBatchId micro_batch) const {
  return static_cast<std::uint64_t>(micro_batch.value() * spec_.plan().micro_batch_samples() +
                                    stage.first_sample);
}

void RankStages::begin_step(std::uint64_t step) {
  samples_ = StepSamples(*spec_.data, spec_.seed, step, spec_.plan().samples_per_step());
  edges_.begin_step(samples_);
}

std::uint64_t RankStages::images_of(const RankStage& stage, MicroBatchId micro_batch) const {
  const std::uint64_t first = first_sample(stage, micro_batch);
  return samples_.first_image(first + static_cast<std::uint64_t>(stage.samples)) -
         samples_.first_image(first);
}

void RankStages::load_training(RankStage& stage, MicroBatchId micro_batch) const {
  give(stage, micro_batch,
       loader_.train(samples_, first_sample(stage, micro_batch), stage.samples));
}

void RankStages::load_validation(RankStage& stage, std::uint64_t first, std::int64_t count,
                                 MicroBatchId micro_batch) const {
  give(stage, micro_batch, loader_.validation(first, count));
}

void RankStages::give(RankStage& stage, MicroBatchId micro_batch, const Batch& samples) const {
  const Batch batch = samples.part_of_sequences(stage.sequences);
  for (const NodeId node : stage.executor.data_inputs()) {
    const auto& input = std::get<Input>(spec_.graph.node(node).attributes);
    stage.executor.put(micro_batch, node,
                       on_device(batch.of(input.kind), "token", NoIndex::refused));
  }
  if (!stage.executor.takes_targets()) return;
  const NoIndex missing = batch.counted_targets ? NoIndex::negative : NoIndex::refused;
  stage.executor.put_targets(micro_batch, on_device(batch.targets, "target", missing),
                             batch.counted_targets);
}

// Indices are checked here: kernels on a device cannot refuse one.
at::Tensor RankStages::on_device(const at::Tensor& part, const char* what, NoIndex missing) const {
  if (accelerator_ == nullptr) return part;
  if (part.scalar_type() == at::kLong) {
    check_indices(part, spec_.data->spec().classes, what, missing);
  }
  return accelerator_->bring(canonical(part));
}

BatchScore RankStages::interact(RankStage& stage, MicroBatchId first, std::int64_t count,
                                Mode mode) {
  std::vector<MicroBatchId> set;
  for (std::int64_t i = 0; i < count; ++i) set.push_back(first + static_cast<int>(i));
  return stage.executor.interact(set, mode, loss_group_.get());
}

Tensors RankStages::outputs(RankStage& stage, EdgeId edge, MicroBatchId micro_batch) const {
  Tensors tensors;
  for (const NodeId node : edges_.nodes(edge, Crossing::activation)) {
    tensors.push_back(stage.executor.output(micro_batch, node));
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

double RankStages::relative_work(const RankStage& stage, MicroBatchId micro_batch) const {
  if (!samples_.ragged()) return 1;
  const auto samples = static_cast<std::uint64_t>(stage.samples);
  const BatchExtent usual = usual_extent(spec_.graph, samples);
  const BatchExtent here = extent_with_items(spec_.graph, samples, images_of(stage, micro_batch));
  double work = 0, usual_work = 0;
  for (const NodeId node : stage.share.nodes) {
    work += strict_node_ops(spec_.graph, node, here).train().to_double();
    usual_work += strict_node_ops(spec_.graph, node, usual).train().to_double();
  }
  return usual_work > 0 ? work / usual_work : 1;
}

// Full recomputation runs every node twice but for a loss over a set, which is made once; selective
// recomputation the attention alone. What all tensor-parallel ranks compute alike, and what all
// ranks with parts of a sequence do, counts for the first one, and is done again by the others.
StepOperations RankStages::operations() const {
  StepOperations result;
  result.components.resize(components());
  for (const std::unique_ptr<RankStage>& stage : stages_) {
    const TensorShard& shard = share_.shards[stage->share.shard];
    const ModelGraph& graph = shard.graph;
    const auto samples = static_cast<std::uint64_t>(stage->samples) *
                         static_cast<std::uint64_t>(stage->micro_batches);
    BatchExtent batch = part_of_step(
        spec_.graph, samples, static_cast<std::uint64_t>(spec_.plan().samples_per_step()),
        static_cast<std::uint64_t>(spec_.plan().micro_batch_samples()));
    if (samples_.ragged()) {
      std::uint64_t images = 0;
      const Segment& segment = spec_.ready->schedule.graph.segments[stage->role().segment];
      for (int i = 0; i < segment.micro_batches; ++i) {
        images += images_of(*stage, segment.first_micro_batch + i);
      }
      batch.items = extent_with_items(spec_.graph, samples, images).items;
    }
    const Recomputation again = spec_.plan().stages[stage->role().stage].recomputation;
    for (const NodeId node : stage->share.nodes) {
      if (shard.is_elsewhere(node)) continue;
      const StrictOps ops = strict_node_ops(graph, node, batch);
      const bool repeated = (stage->role().tensor_index > 0 && !shard.is_cut(node)) ||
                            (shard.part.index > 0 && shard.each_part_has(node));
      StepOperations sum;
      (repeated ? sum.recompute : sum.strict) += ops.train();
      const Attributes& kind = graph.node(node).attributes;
      const bool twice = again == Recomputation::full
                             ? !std::holds_alternative<Contrastive>(kind)
                             : again == Recomputation::selective && is_attention(kind);
      if (twice) sum.recompute += ops.forward;
      result.add(sum);
      if (!result.components.empty()) result.components[component_of(node)].add(sum);
    }
  }
  return result;
}

}  // namespace heteroperf
