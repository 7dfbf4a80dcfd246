// Evaluation on the whole group. Each replica takes its part of every batch; the score of a batch
// is summed in an order that does not depend on the number of ranks. Running statistics differ
// between replicas, because each saw its own micro-batches, so all evaluate with their mean.
#include "runners/engine/pipeline/evaluation.hpp"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include "metrics/base/clock.hpp"
#include "metrics/base/error.hpp"
#include "metrics/base/id.hpp"
#include "runners/comm/communicator.hpp"
#include "workloads/graph/graph_counts.hpp"

namespace heteroperf {
namespace {

/// A run of validation samples that passes the stages together.
struct Piece {
  std::uint64_t first = 0;
  std::int64_t count = 0;
  std::vector<std::int64_t> first_item = {};  ///< as PipelineEdges::EvaluatedBatch
};

/// The samples of a piece that a stage's replica takes; none or fewer behind the piece's end.
std::int64_t samples_of(const RankStage& stage, const Piece& piece) {
  // Evaluation passes the stages in the first direction alone.
  if (stage.role().segment.value() != stage.role().stage.value()) return 0;
  return std::clamp<std::int64_t>(piece.count - stage.first_sample, 0, stage.samples);
}

/// Runs a piece, at most a micro-batch of the plan, stage by stage as micro-batch `number`; with
/// several pieces ranks overlap by themselves. Gives the score of this rank's share on the stage of
/// the loss, else nothing.
BatchScore run_piece(RankStages& stages, const Piece& piece, MicroBatchId number) {
  BatchScore score;
  PipelineEdges& edges = stages.edges();
  const PipelineEdges::EvaluatedBatch batch{piece.count, piece.first_item};
  for (const std::unique_ptr<RankStage>& stage : stages.all()) {
    const std::int64_t samples = samples_of(*stage, piece);
    if (samples == 0) continue;
    StageExecutor& executor = stage->executor;
    if (executor.reads_data()) {
      const auto skipped = static_cast<std::uint64_t>(stage->first_sample);
      stages.load_validation(*stage, piece.first + skipped, samples, number);
    }
    for (const EdgeId e : stage->edges.in) {
      const std::vector<NodeId>& nodes = edges.nodes(e, Crossing::activation);
      const Tensors tensors = edges.take_evaluated(e, batch);
      for (std::size_t n = 0; n < nodes.size(); ++n) executor.put(number, nodes[n], tensors[n]);
    }
    const BatchScore here = executor.evaluate(number);
    if (stage->role().tensor_index == 0 && executor.takes_targets()) score = here;
    for (const EdgeId e : stage->edges.out) {
      edges.hand_on_evaluated(e, batch, stages.outputs(*stage, e, number));
    }
    if (!executor.interacts()) executor.release(number);
  }
  return score;
}

/// Holds the samples of the pieces against each other, once all of them have passed.
BatchScore run_interaction(RankStages& stages, std::span<const Piece> pieces) {
  RankStage& stage = *stages.all().back();
  if (!stage.executor.interacts()) return {};
  int here = 0;
  for (const Piece& piece : pieces) here += samples_of(stage, piece) > 0 ? 1 : 0;
  BatchScore score = stages.interact(stage, MicroBatchId(0), here, Mode::evaluate);
  for (int i = 0; i < here; ++i) stage.executor.release(MicroBatchId(i));
  return stage.role().tensor_index == 0 ? score : BatchScore();
}

/// One slot per piece and replica, filled by one rank each: the sum does not depend on the number
/// of ranks. Behind the slots stand the right answers and the targets, exact as doubles. Pieces
/// that are held against each other have their score in the slot of the first.
std::vector<double> score_pieces(const TrainingSpec& spec, Communicator& world, RankStages& stages,
                                 std::uint64_t first, std::uint64_t samples) {
  const bool in_sets = spec.data->spec().kind == SampleKind::pairs;
  const std::int64_t width = spec.plan().micro_batch_samples();
  const std::int64_t set = in_sets ? static_cast<std::int64_t>(evaluated_pairs) : width;
  std::vector<Piece> pieces;
  std::vector<std::size_t> set_ends;
  for (std::uint64_t begin = 0; begin < samples; begin += static_cast<std::uint64_t>(set)) {
    const std::int64_t here = std::min(set, static_cast<std::int64_t>(samples - begin));
    for (std::int64_t i = 0; i < here; i += width) {
      Piece& piece = pieces.emplace_back(
          Piece{first + begin + static_cast<std::uint64_t>(i), std::min(width, here - i)});
      piece.first_item = validation_images(*spec.data, piece.first, piece.count);
    }
    set_ends.push_back(pieces.size());
  }
  const std::size_t replicas = spec.plan().stages.back().replicas.size();
  const std::size_t replica = stages.all().back()->role().replica.index();
  std::vector<double> scores(pieces.size() * replicas + 2);
  const auto note = [&](std::size_t piece, const BatchScore& score) {
    if (score.targets == 0) return;
    scores[piece * replicas + replica] += score.loss * static_cast<double>(score.targets);
    scores[pieces.size() * replicas] += static_cast<double>(score.correct);
    scores[pieces.size() * replicas + 1] += static_cast<double>(score.targets);
  };
  std::size_t begin = 0;
  for (const std::size_t end : set_ends) {
    for (std::size_t p = begin; p < end; ++p) {
      note(p, run_piece(stages, pieces[p], MicroBatchId(static_cast<int>(p - begin))));
    }
    note(begin, run_interaction(stages, std::span(pieces).subspan(begin, end - begin)));
    begin = end;
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
  const auto images =
      validation_images(*spec.data, first, static_cast<std::int64_t>(report.samples));
  if (!images.empty()) report.images = static_cast<std::uint64_t>(images.back());
  std::vector<double> scores;
  {
    const AveragedStatistics averaged(spec, world, stages);
    scores = score_pieces(spec, world, stages, first, report.samples);
  }
  const std::size_t slots = scores.size() - 2;
  report.loss = std::accumulate(scores.begin(), scores.end() - 2, 0.0) / scores[slots + 1];
  report.accuracy = scores[slots] / scores[slots + 1];
  report.t_end_ns = now_ns();
  return report;
}

}  // namespace heteroperf
