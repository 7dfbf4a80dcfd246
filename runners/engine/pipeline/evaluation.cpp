// Evaluation on the whole group. Each replica takes its part of every batch; the score of a batch
// is summed in an order that does not depend on the number of ranks. Running statistics differ
// between replicas, because each saw its own micro-batches, so all evaluate with their mean.
#include "runners/engine/pipeline/evaluation.hpp"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "metrics/base/clock.hpp"
#include "metrics/base/error.hpp"
#include "metrics/base/id.hpp"
#include "runners/comm/communicator.hpp"

namespace heteroperf {
namespace {

/// Runs validation samples [first, first + count), at most a micro-batch of the plan, stage by
/// stage in the first direction; with several batches ranks overlap by themselves. Gives the score
/// of this rank's share on the stage of the loss, else nothing.
BatchScore evaluate_batch(const TrainingSpec& spec, RankStages& stages, std::uint64_t first,
                          std::int64_t count) {
  BatchScore score;
  PipelineEdges& edges = stages.edges();
  for (const std::unique_ptr<RankStage>& stage : stages.all()) {
    const std::int64_t samples = std::min(stage->samples, count - stage->first_sample);
    if (stage->role().segment.value() != stage->role().stage.value() || samples <= 0) continue;
    StageExecutor& executor = stage->executor;
    if (executor.takes_data() || executor.takes_targets()) {
      const Batch batch =
          stages.validation_batch(first + static_cast<std::uint64_t>(stage->first_sample), samples);
      stage->sample = batch.sample;
      if (executor.takes_data()) executor.put(0, spec.graph.input(), batch.sample);
      if (executor.takes_targets()) executor.put_targets(0, batch.targets);
    }
    for (const EdgeId e : stage->edges.in) {
      const std::vector<NodeId>& nodes = edges.nodes(e, Crossing::activation);
      const Tensors tensors = edges.take_evaluated(e, count);
      for (std::size_t n = 0; n < nodes.size(); ++n) executor.put(0, nodes[n], tensors[n]);
    }
    const BatchScore here = executor.evaluate(0);
    if (stage->role().tensor_index == 0 && executor.takes_targets()) score = here;
    for (const EdgeId e : stage->edges.out) {
      edges.hand_on_evaluated(e, count, stages.outputs(*stage, e, 0));
    }
    executor.release(0);
  }
  return score;
}

/// One slot per batch and replica, filled by one rank each: the sum does not depend on the number
/// of ranks. Behind the slots stand the right answers and the targets, exact as doubles.
std::vector<double> score_batches(const TrainingSpec& spec, Communicator& world, RankStages& stages,
                                  std::uint64_t first, std::uint64_t samples) {
  const auto width = static_cast<std::uint64_t>(spec.plan().micro_batch_samples());
  const std::uint64_t batches = (samples + width - 1) / width;
  const std::size_t replicas = spec.plan().stages.back().replicas.size();
  const std::size_t replica = stages.all().back()->role().replica.index();
  std::vector<double> scores(batches * replicas + 2);
  for (std::uint64_t b = 0; b < batches; ++b) {
    const std::uint64_t count = std::min(width, samples - b * width);
    const BatchScore score =
        evaluate_batch(spec, stages, first + b * width, static_cast<std::int64_t>(count));
    if (score.targets == 0) continue;
    scores[b * replicas + replica] = score.loss * static_cast<double>(score.targets);
    scores[batches * replicas] += static_cast<double>(score.correct);
    scores[batches * replicas + 1] += static_cast<double>(score.targets);
  }
  stages.edges().drain();
  world.all_reduce(std::span<double>(scores));
  return scores;
}

}  // namespace

AveragedStatistics::AveragedStatistics(const TrainingSpec& spec, Communicator& world,
                                       const RankStages& stages)
    : spec_(spec), world_(world) {
  if (std::all_of(spec.plan().stages.begin(), spec.plan().stages.end(),
                  [](const PlanStage& stage) { return stage.replicas.size() == 1; })) {
    return;
  }
  buffers_ = stages.buffers();
  std::vector<std::size_t> first;
  std::vector<double> sums = sum_over_replicas(first);
  if (sums.empty()) return;
  for (const RankStages::Buffers& part : buffers_) {
    const auto copies = static_cast<double>(spec.plan().stages[part.stage].replicas.size());
    double* next = sums.data() + first[part.stage.index()];
    Tensors& before = replica_values_.emplace_back();
    for (const auto& [name, buffer] : part.named) {
      before.push_back(buffer.clone());
      for (std::int64_t i = 0; i < buffer.numel(); ++i) next[i] /= copies;
      at::Tensor(buffer).copy_(
          at::from_blob(next, buffer.sizes(), at::TensorOptions().dtype(at::kDouble)));
      next += buffer.numel();
    }
  }
}

// The statistics of stage s begin at element first[s] of the result.
std::vector<double> AveragedStatistics::sum_over_replicas(std::vector<std::size_t>& first) const {
  const std::size_t stages = spec_.plan().stages.size();
  std::vector<double> sizes(stages);
  for (const RankStages::Buffers& part : buffers_) {
    for (const auto& [name, buffer] : part.named) {
      sizes[part.stage.index()] += static_cast<double>(buffer.numel());
    }
  }
  world_.all_reduce(std::span<double>(sizes), Reduction::max);
  first.assign(stages + 1, 0);
  for (std::size_t s = 0; s < stages; ++s)
    first[s + 1] = first[s] + static_cast<std::size_t>(sizes[s]);
  std::vector<double> sums(first.back());
  if (sums.empty()) return sums;
  for (const RankStages::Buffers& part : buffers_) {
    if (part.tensor_index != 0) continue;
    double* next = sums.data() + first[part.stage.index()];
    for (const auto& [name, buffer] : part.named) {
      const at::Tensor wide = buffer.to(at::kDouble).contiguous().cpu();
      const auto* data = wide.const_data_ptr<double>();
      for (std::int64_t i = 0; i < wide.numel(); ++i) *next++ += data[i];
    }
  }
  world_.all_reduce(std::span<double>(sums));
  return sums;
}

AveragedStatistics::~AveragedStatistics() {
  for (std::size_t p = 0; p < replica_values_.size(); ++p) {
    for (std::size_t i = 0; i < replica_values_[p].size(); ++i) {
      at::Tensor(buffers_[p].named[i].values).copy_(replica_values_[p][i]);
    }
  }
}

EvaluationReport evaluate(const TrainingSpec& spec, Communicator& world, RankStages& stages,
                          std::uint64_t first, std::uint64_t samples) {
  EvaluationReport report;
  report.t_start_ns = now_ns();
  report.samples = std::min(samples, spec.data->size(Split::validation) - first);
  if (report.samples == 0) {
    throw UserError("there is nothing to evaluate on",
                    "0 validation samples asked for or there: " + spec.data->description(),
                    "Use data with a validation split");
  }
  std::vector<double> scores;
  {
    const AveragedStatistics averaged(spec, world, stages);
    scores = score_batches(spec, world, stages, first, report.samples);
  }
  const std::size_t slots = scores.size() - 2;
  report.loss = std::accumulate(scores.begin(), scores.end() - 2, 0.0) / scores[slots + 1];
  report.accuracy = scores[slots] / scores[slots + 1];
  report.t_end_ns = now_ns();
  return report;
}

}  // namespace heteroperf
