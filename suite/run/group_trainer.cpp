#include "suite/run/group_trainer.hpp"

#include <array>
#include <span>

#include "workloads/graph_counts.hpp"

namespace heteroperf {
namespace {

std::uint64_t samples_per_rank(const TrainingSpec& spec) {
  return static_cast<std::uint64_t>(spec.micro_batch * spec.micro_batches);
}

std::uint64_t tokens_of(const ModelGraph& graph) {
  const auto& input = std::get<Input>(graph.node(graph.input()).attributes);
  return input.kind == InputKind::tokens ? static_cast<std::uint64_t>(input.length) : 0;
}

}  // namespace

GroupTrainer::GroupTrainer(RankContext& context, Communicator& group, int group_number,
                           std::optional<std::uint64_t> trial, const TrainingSpec& spec)
    : context_(context),
      group_(group),
      group_number_(group_number),
      trial_(trial),
      session_(context.engine.start(spec, group)),
      samples_per_step_(samples_per_rank(spec) * static_cast<std::uint64_t>(group.size())),
      tokens_per_sample_(tokens_of(spec.graph)),
      ops_per_step_(strict_train_ops(spec.graph, samples_per_step_)),
      ops_per_rank_step_(strict_train_ops(spec.graph, samples_per_rank(spec))),
      evaluation_ops_per_sample_(strict_forward_ops(spec.graph, 1)) {}

StepReport GroupTrainer::step() {
  StepReport report;
  if (steps_done_ == 0) {
    ObservedOperations observed;
    report = session_->observed_step(observed);
    post_observed(report, observed);
  } else {
    report = session_->step();
  }
  post_step(report);
  ++steps_done_;
  return report;
}

void GroupTrainer::post_observed(const StepReport& report, const ObservedOperations& observed) {
  ObservedEvent event;
  event.rank = context_.all_ranks().rank().value();
  event.group = group_number_;
  event.trial = trial_;
  event.n = report.step;
  event.executed = observed.executed;
  event.strict = ops_per_rank_step_;
  event.calls = observed.calls;
  event.unknown = observed.unknown;
  context_.post(event);
}

StepSplit GroupTrainer::mean_split(const TimeSplit& mine) {
  std::array<double, 4> parts{mine.compute_s, mine.communication_s, mine.data_s, mine.other_s};
  if (group_.size() > 1) group_.all_reduce(std::span(parts), Reduction::average);
  return {parts[0], parts[1], parts[2], parts[3]};
}

void GroupTrainer::post_step(const StepReport& report) {
  const StepSplit split = mean_split(report.split);
  if (group_.rank() != RankId(0)) return;
  StepEvent event;
  event.group = group_number_;
  event.trial = trial_;
  event.n = report.step;
  event.t_start_ns = report.t_start_ns + context_.clock_offset_ns;
  event.t_end_ns = report.t_end_ns + context_.clock_offset_ns;
  event.samples = report.samples;
  event.tokens = report.samples * tokens_per_sample_;
  event.ops_strict = ops_per_step_;
  event.loss = report.loss;
  event.gradient_norm = report.gradient_norm;
  event.split = split;
  context_.post(event);
}

EvaluationReport GroupTrainer::evaluate(std::uint64_t samples) {
  const EvaluationReport report = session_->evaluate(samples);
  if (group_.rank() == RankId(0)) {
    EvalEvent event;
    event.group = group_number_;
    event.trial = trial_;
    event.samples = report.samples;
    event.loss = report.loss;
    event.accuracy = report.accuracy;
    event.ops_strict = evaluation_ops_per_sample_ * report.samples;
    event.t_start_ns = report.t_start_ns + context_.clock_offset_ns;
    event.t_end_ns = report.t_end_ns + context_.clock_offset_ns;
    context_.post(event);
  }
  return report;
}

void GroupTrainer::post_checksums() {
  ChecksumEvent event;
  event.rank = context_.all_ranks().rank().value();
  event.group = group_number_;
  event.trial = trial_;
  event.n = steps_done_;
  event.fingerprint = session_->parameter_fingerprint();
  context_.post(event);
}

}  // namespace heteroperf
