// The part of a training that its journal sees. The engine trains; this class posts each step,
// evaluation and fingerprint as an event with times on rank 0's clock, and counts operations by the
// one formula of the model graph. The first step is an *observed* one: the engine counts every
// operator it calls, so the journal holds an independent witness of the counted operations.
//
// An evaluation goes over the validation split slice by slice, a micro-batch per rank each, so that
// a stop signal is heard in between and a classifier can end early once it has given enough wrong
// answers for its error to be known. The engine always evaluates the beginning of its split; a
// window moves that beginning.
#include "suite/training/group_trainer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "metrics/base/error.hpp"
#include "metrics/score.hpp"
#include "suite/planning/chosen_plan.hpp"
#include "workloads/graph/graph_counts.hpp"

namespace heteroperf {

/// A data source whose validation split can be narrowed, so that an evaluation goes slice by slice.
class ValidationWindow : public DataSource {
 public:
  explicit ValidationWindow(std::shared_ptr<const DataSource> data)
      : data_(std::move(data)), count_(data_->size(Split::validation)) {}

  /// Not while somebody reads.
  void show(std::uint64_t first, std::uint64_t count) { first_ = first, count_ = count; }

  const SampleSpec& spec() const override { return data_->spec(); }
  std::uint64_t size(Split split) const override {
    return split == Split::validation ? count_ : data_->size(split);
  }
  void read(Split split, std::uint64_t index, SampleView out) const override {
    data_->read(split, split == Split::validation ? first_ + index : index, out);
  }
  std::string description() const override { return data_->description(); }
  std::string fingerprint() const override { return data_->fingerprint(); }
  std::optional<double> loss_floor() const override { return data_->loss_floor(); }
  std::optional<double> error_floor() const override { return data_->error_floor(); }

 private:
  std::shared_ptr<const DataSource> data_;
  std::uint64_t first_ = 0, count_;
};

namespace {

/// The engine gets the window in place of the data, so that the window decides what an evaluation
/// sees.
TrainingSpec with_data(TrainingSpec spec, std::shared_ptr<const DataSource> data) {
  spec.data = std::move(data);
  return spec;
}

// A language model predicts one token per position, a classifier one class per sample.
std::uint64_t targets_per_sample(const DataSource& data) {
  const SampleSpec& spec = data.spec();
  return spec.kind == InputKind::tokens ? static_cast<std::uint64_t>(spec.length) : 1;
}

/// Images have no tokens; their steps report 0.
std::uint64_t tokens_of(const ModelGraph& graph) {
  const auto& input = std::get<Input>(graph.node(graph.input()).attributes);
  return input.kind == InputKind::tokens ? static_cast<std::uint64_t>(input.length) : 0;
}

}  // namespace

EvaluationExtent final_extent(const RunConfig& config, const Workload& workload,
                              const ChosenPlan* plan) {
  const bool search = plan == nullptr;
  const std::uint64_t samples =
      search ? config.automl.evaluation_samples : config.measure.evaluation_samples;
  EvaluationExtent extent{search ? samples : 0, samples, samples, 0, true};
  const FinalEvaluation rule{workload.unit != "token", config.quick, !search && plan->emulated,
                             samples};
  // Other models are judged on a fixed number of samples.
  if (!rule.goes_on_to_errors()) return extent;
  extent.wrong = enough_wrong_answers;
  extent.most = config.data.source == "generated" ? rule.most_generated_samples()
                                                  : workload.data->size(Split::validation);
  return extent;
}

std::string samples_text(const EvaluationExtent& extent) {
  return fmt::format("{} samples{}", extent.fewest, extent.most > extent.fewest ? " or more" : "");
}

TrainingSpec training_spec(const RankContext& context, const Workload& workload) {
  TrainingSpec spec;
  spec.graph = workload.graph;
  spec.data = workload.data;
  spec.recipe = workload.recipe;
  spec.precision = workload.precision;
  spec.timeout_s = context.config.comm.timeout_s;
  spec.clock_offset_ns = context.clock_offset_ns;
  spec.seed = context.config.seed;
  spec.threads = context.placement.threads_per_rank;
  spec.gpu = context.gpu();
  spec.moved = context.config.measure.replay_moved;
  return spec;
}

GroupTrainer::GroupTrainer(RankContext& context, Communicator& group, int group_number,
                           std::optional<std::uint64_t> trial, const TrainingSpec& spec)
    : context_(context),
      group_(group),
      group_number_(group_number),
      trial_(trial),
      window_(std::make_shared<ValidationWindow>(spec.data)),
      session_(context.engine.start(with_data(spec, window_), group,
                                    trial ? nullptr : context.devices.get())),
      samples_per_slice_(static_cast<std::uint64_t>(spec.plan().micro_batch_samples())),
      samples_per_step_(spec.plan().samples_per_step()),
      tokens_per_sample_(tokens_of(spec.graph)),
      ops_per_step_(strict_train_ops(spec.graph, samples_per_step_)),
      evaluation_ops_per_sample_(strict_forward_ops(spec.graph, 1)) {}

StepReport GroupTrainer::step() {
  StepReport report;
  if (!observed_) {
    observed_ = true;
    ObservedOperations observed;
    report = session_->observed_step(observed);
    post_observed(report, observed);
  } else {
    report = session_->step();
  }
  post_step(report);
  context_.log_step(report.step, report.loss);
  // Watches run between steps, outside the times of a step.
  if (context_.look_around) context_.look_around();
  ++steps_done_;
  return report;
}

void GroupTrainer::restore(const std::string& folder, std::uint64_t step) {
  session_->restore(folder);
  steps_done_ = step;
}

void GroupTrainer::post_observed(const StepReport& report, const ObservedOperations& observed) {
  const StepOperations operations = session_->operations();
  context_.post(ObservedEvent{.rank = context_.all_ranks().rank().value(),
                              .group = group_number_,
                              .trial = trial_,
                              .n = report.step,
                              .executed = observed.executed,
                              .strict = operations.strict,
                              .recompute = operations.recompute,
                              .calls = observed.calls,
                              .unknown = observed.unknown});
}

StepSplit GroupTrainer::mean_split(const TimeSplit& mine) {
  std::array<double, 5> parts{mine.compute_s, mine.communication_s, mine.bubble_s, mine.data_s,
                              mine.other_s};
  if (group_.size() > 1) group_.all_reduce(std::span(parts), Reduction::average);
  return {parts[0], parts[1], parts[2], parts[3], parts[4]};
}

void GroupTrainer::post_step(const StepReport& report) {
  const StepSplit split = mean_split(report.split);
  // One line per group; the split is the mean over its ranks.
  if (group_.rank() != RankId(0)) return;
  context_.post(StepEvent{.group = group_number_,
                          .trial = trial_,
                          .n = report.step,
                          .t_start_ns = report.t_start_ns + context_.clock_offset_ns,
                          .t_end_ns = report.t_end_ns + context_.clock_offset_ns,
                          .samples = report.samples,
                          .tokens = report.samples * tokens_per_sample_,
                          .ops_strict = ops_per_step_,
                          .loss = report.loss,
                          .gradient_norm = report.gradient_norm,
                          .split = split});
}

std::optional<EvaluationReport> GroupTrainer::evaluate(const EvaluationExtent& extent) {
  const std::uint64_t all = window_->size(Split::validation);
  HETEROPERF_EXPECT(all > 0 && extent.most > 0);
  const std::uint64_t end = std::min(extent.most, all);
  EvaluationReport total;
  double targets = 0, right = 0;
  const auto is_enough = [&] {
    return total.samples >= extent.fewest && targets - right >= static_cast<double>(extent.wrong);
  };
  do {
    const Directive mine = stop_wanted(context_) ? Directive::interrupt : Directive::go_on;
    if (agree(group_, mine) == Directive::interrupt) return std::nullopt;
    const std::uint64_t start = (extent.first + total.samples) % all;
    // A slice ends where the split ends, since a window cannot wrap around.
    const std::uint64_t count = std::min({samples_per_slice_, end - total.samples, all - start});
    window_->show(start, count);
    const EvaluationReport slice = session_->evaluate(count);
    window_->show(0, all);
    if (total.samples == 0) total.t_start_ns = slice.t_start_ns;
    total.t_end_ns = slice.t_end_ns;
    total.samples += slice.samples;
    const auto slice_targets = static_cast<double>(slice.samples * targets_per_sample(*window_));
    targets += slice_targets;
    total.loss += slice.loss * slice_targets;
    // The accuracy of a slice is a quotient; rounding gives back the whole number of right answers.
    right += std::round(slice.accuracy * slice_targets);
  } while (total.samples < end && !is_enough());
  total.loss /= targets;
  total.accuracy = right / targets;
  if (group_.rank() != RankId(0)) return total;
  EvalEvent event{.group = group_number_,
                  .trial = trial_,
                  .samples = total.samples,
                  .loss = total.loss,
                  .accuracy = total.accuracy,
                  .ops_strict = evaluation_ops_per_sample_ * total.samples,
                  .t_start_ns = total.t_start_ns + context_.clock_offset_ns,
                  .t_end_ns = total.t_end_ns + context_.clock_offset_ns};
  if (extent.is_final) event.is_final = true;
  context_.post(event);
  return total;
}

void GroupTrainer::post_checksums(const std::string& share) {
  context_.post(ChecksumEvent{context_.all_ranks().rank().value(), group_number_, trial_,
                              steps_done_, session_->parameter_fingerprint(), share});
}

}  // namespace heteroperf
