// A training as its journal sees it, and the loop of a rank that trains one fixed model by a plan.
// The engine trains; GroupTrainer posts each step, evaluation and fingerprint as an event with
// times on rank 0's clock, and counts operations by the one formula of the model graph. The first
// step is an *observed* one: the engine counts every operator it calls, so the journal holds an
// independent witness of the counted operations. An evaluation goes over the validation split slice
// by slice, a micro-batch per rank each, so that a stop signal is heard in between and a classifier
// can end early once it has given enough wrong answers for its error to be known.
//
// In the loop rank 0 chooses a *directive* before each step (go on, measure from here, hold, end,
// stop) and broadcasts it, so that all ranks do the same steps even though only rank 0 looks at the
// clock, at signals, and at how well the throughput is known. Phases are warm-up and measure
// (measure_phases.hpp), finish, evaluate; rank 0 posts a line at the start of each, which is what
// cuts the *steady window* out of the journal later. In lockstep, where a gate alternates between
// two programs, the gate decides how many steps come next and the run stands still in between.
#include "suite/training/group_trainer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <utility>

#include "metrics/base/clock.hpp"
#include "metrics/base/error.hpp"
#include "metrics/score.hpp"
#include "suite/planning/chosen_plan.hpp"
#include "suite/training/adaptation.hpp"
#include "suite/training/checkpointing.hpp"
#include "suite/training/measure_phases.hpp"
#include "suite/training/product_ways.hpp"
#include "suite/training/step_times.hpp"
#include "suite/training/step_trace.hpp"
#include "suite/training/turn_taker.hpp"
#include "workloads/graph/graph_counts.hpp"

namespace heteroperf {
namespace {

constexpr const char* warmup_name = "warm-up";

/// Images have no tokens; their steps report 0.
std::uint64_t tokens_of(const DataSource& data) {
  const SampleSpec& spec = data.spec();
  return spec.kind == SampleKind::tokens ? static_cast<std::uint64_t>(spec.length) : 0;
}

/// A loss that is not finite never recovers, so the run ends at once with advice.
void check_finite(const StepReport& report) {
  if (std::isfinite(report.loss) && std::isfinite(report.gradient_norm)) return;
  throw Error(ErrorKind::run_failed,
              {{fmt::format("the loss is not finite at step {} (loss {}, gradient norm {})",
                            report.step, report.loss, report.gradient_norm),
                fmt::format("learning rate {}", report.learning_rate),
                "Try --set optimizer.learning_rate=… lower, or --set optimizer.clip_norm=1"}});
}

}  // namespace

EvaluationExtent final_extent(const RunConfig& config, const Workload& workload,
                              const ChosenPlan* plan) {
  const bool search = plan == nullptr;
  const std::uint64_t samples =
      search ? config.automl.evaluation_samples : config.measure.evaluation_samples;
  EvaluationExtent extent{search ? samples : 0, samples, samples, 0, true};
  const FinalEvaluation rule{workload.unit == "image", config.quick, !search && plan->emulated,
                             samples};
  // Other models are judged on a fixed number of samples.
  if (!rule.goes_on_to_errors()) return extent;
  extent.wrong = enough_wrong_answers;
  extent.most = is_generated(config.data.source) ? rule.most_generated_samples()
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
  spec.products = context.products;
  spec.moved = context.config.measure.replay_moved;
  return spec;
}

TrainingSpec planned_spec(const RankContext& context, const Workload& workload,
                          const ChosenPlan& chosen) {
  TrainingSpec spec = training_spec(context, workload);
  spec.ready = std::make_shared<const ReadyPlan>(chosen);
  if (chosen.emulated) {
    // Emulated ranks share the cores of their hosts, which the pacing must know.
    spec.pacing = Pacing{*chosen.paced, context.config.pace.dilation, core_count(context.placement),
                         chosen.paced_change};
  }
  return spec;
}

GroupTrainer::GroupTrainer(RankContext& context, Communicator& group, int group_number,
                           std::optional<std::uint64_t> trial, const TrainingSpec& spec)
    : context_(context),
      group_(group),
      group_number_(group_number),
      trial_(trial),
      data_(spec.data),
      session_(context.engine.start(spec, group, trial ? nullptr : context.devices.get())),
      samples_per_slice_(spec.data->spec().kind == SampleKind::pairs
                             ? evaluated_pairs
                             : static_cast<std::uint64_t>(spec.plan().micro_batch_samples())),
      tokens_per_sample_(tokens_of(*spec.data)),
      graph_(spec.graph),
      ops_per_step_(strict_train_ops(spec.graph, spec.plan().samples_per_step())) {}

StepReport GroupTrainer::step() {
  ObservedOperations observed;
  const bool first = !std::exchange(observed_, true);
  const StepReport report = session_->step(first ? &observed : nullptr);
  context_.steps_s += static_cast<double>(report.t_end_ns - report.t_start_ns) * 1e-9;
  if (first) {
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

// Both sessions are in memory while the state moves.
MoveReport GroupTrainer::change_plan(TrainingSpec spec) {
  const std::optional<PacingReport> before = session_->pacing();
  if (before) {
    spec.pacing->dilation = before->dilation;
    earlier_pacing_.operations += before->operations;
    earlier_pacing_.late += before->late;
  }
  session_->rest();
  std::unique_ptr<TrainingSession> next =
      context_.engine.start(spec, group_, trial_ ? nullptr : context_.devices.get());
  const MoveReport moved = next->take_over(*session_);
  earlier_peak_bytes_ =
      std::max(peak_bytes(), session_->memory().current_bytes + next->memory().peak_bytes);
  session_ = std::move(next);
  samples_per_slice_ = static_cast<std::uint64_t>(spec.plan().micro_batch_samples());
  observed_ = false;
  return moved;
}

std::uint64_t GroupTrainer::peak_bytes() const {
  return std::max(earlier_peak_bytes_, session_->memory().peak_bytes);
}

std::optional<PacingReport> GroupTrainer::pacing() const {
  std::optional<PacingReport> report = session_->pacing();
  if (!report) return report;
  report->operations += earlier_pacing_.operations;
  report->late += earlier_pacing_.late;
  return report;
}

Ops GroupTrainer::ops_of(const StepReport& report) const {
  return strict_train_ops(graph_, extent_with_items(graph_, report.samples, *report.images));
}

void GroupTrainer::post_step(const StepReport& report) {
  // One line per group; the split is the mean over its ranks.
  const TimeSplit& time_split = report.split;
  std::array<double, 5> split{time_split.compute_s, time_split.communication_s, time_split.bubble_s,
                              time_split.data_s, time_split.other_s};
  if (group_.size() > 1) group_.all_reduce(std::span(split), Reduction::average);
  if (group_.rank() != RankId(0)) return;
  context_.post(StepEvent{.group = group_number_,
                          .trial = trial_,
                          .n = report.step,
                          .t_start_ns = report.t_start_ns + context_.clock_offset_ns,
                          .t_end_ns = report.t_end_ns + context_.clock_offset_ns,
                          .samples = report.samples,
                          .tokens = report.samples * tokens_per_sample_,
                          .images = report.images,
                          .ops_strict = report.images ? ops_of(report) : ops_per_step_,
                          .loss = report.loss,
                          .gradient_norm = report.gradient_norm,
                          .split = {split[0], split[1], split[2], split[3], split[4]}});
}

std::optional<EvaluationReport> GroupTrainer::evaluate(const EvaluationExtent& extent) {
  const std::uint64_t all = data_->size(Split::validation);
  HETEROPERF_EXPECT(all > 0 && extent.most > 0);
  const std::uint64_t end = std::min(extent.most, all);
  EvaluationReport total;
  double targets = 0, right = 0;
  const auto is_enough = [&] {
    return total.samples >= extent.fewest && targets - right >= static_cast<double>(extent.wrong);
  };
  do {
    if (share_answer(group_, stop_wanted(context_))) return std::nullopt;
    const std::uint64_t start = (extent.first + total.samples) % all;
    // A slice ends where the split ends.
    const std::uint64_t count = std::min({samples_per_slice_, end - total.samples, all - start});
    const EvaluationReport slice = session_->evaluate(count, start);
    if (total.samples == 0) total.t_start_ns = slice.t_start_ns;
    total.t_end_ns = slice.t_end_ns;
    total.samples += slice.samples;
    if (slice.images) total.images = total.images.value_or(0) + *slice.images;
    // A language model predicts one token per position, a classifier one class per sample.
    const auto slice_targets =
        static_cast<double>(slice.samples * std::max<std::uint64_t>(1, tokens_per_sample_));
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
                  .images = total.images,
                  .loss = total.loss,
                  .accuracy = total.accuracy,
                  .ops_strict = strict_evaluation_ops(
                      graph_, extent_with_items(graph_, total.samples, total.images.value_or(0))),
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

namespace {

/// The components that a rank's time is told of; none where the model has but one.
std::vector<std::string> told_components(const ModelGraph& graph) {
  std::vector<std::string> names = components_of(graph);
  if (names.size() == 1) names.clear();
  return names;
}

/// One rank of one training, from the first step to the last evaluation.
class TrainingProgram {
 public:
  TrainingProgram(RankContext& context, const Workload& workload, const ChosenPlan& plan)
      : context_(context),
        workload_(workload),
        plan_(&plan),
        final_(final_extent(context.config, workload, &plan)),
        trainer_(context, context.all_ranks(), 0, std::nullopt,
                 planned_spec(context, workload, plan)),
        checkpoints_(context,
                     [this](const std::string& folder) { return trainer_.session().save(folder); }),
        phases_(context.config.measure, warmup_steps_of(context.config),
                steps_before(context.config)),
        times_(told_components(workload.graph)),
        // One rank of every process says what it uses.
        turns_(context,
               context.is_first() || context.config.scale.transport != Transport::threads) {
    if (!context.config.trace.empty()) tracer_.emplace(context.config.measure.steps);
    if (context.config.adapt.every_steps > 0) adaptation_.emplace(context, workload, plan);
    if (const auto& parent = context.config.parent) {
      trainer_.restore(parent->checkpoint, parent->step);
    }
  }

  /// Returns true where the training was interrupted.
  bool train() {
    enter(Phase::warmup);
    for (;;) {
      // Exactly one directive per turn of this loop, the same on all ranks.
      const Directive directive =
          agree(context_, context_.all_ranks(), [this] { return wanted(); });
      if (directive == Directive::interrupt) return true;
      if (directive == Directive::end) return false;
      if (directive == Directive::next_phase) {
        measuring_ = true;
        enter(Phase::measure);
        // The gate is asked first how many steps come next.
        if (context_.in_lockstep) continue;
      }
      if (directive == Directive::hold) {
        const TurnOrder order = turns_.stand_still();
        // The time that the run stood still belongs to no step.
        times_.leave_out(order.held_ns);
        if (order.kind == TurnOrder::Kind::steps) continue;
        return order.kind == TurnOrder::Kind::interrupt;
      }
      if (tracer_) {
        trainer_.session().trace_to(tracer_->before_step(measuring_, trainer_.steps_done()));
      }
      note(trainer_.step());
      checkpoints_.after_step(trainer_.steps_done());
      if (adaptation_ && adaptation_->is_due() && is_before_last()) adapt();
    }
  }

  /// After the last step there is no training: the window of OPS ends here.
  void finish(bool interrupted) {
    enter(Phase::finish);
    checkpoints_.at_end(trainer_.steps_done(), interrupted);
    trainer_.post_checksums(held_share(plan_->plan, plan_->roles[rank()]));
    post_times();
    if (tracer_) write_step_trace(context_, *plan_, tracer_->steps());
    if (!interrupted && !context_.in_lockstep) {
      enter(Phase::evaluate);
      trainer_.evaluate(final_);
    }
    context_.post(MemoryEvent{rank(), trainer_.peak_bytes()});
  }

 private:
  /// A plan that no step would follow is not looked for.
  bool is_before_last() const {
    const std::uint64_t steps = context_.config.measure.steps;
    return steps == 0 || trainer_.steps_done() < steps;
  }

  /// Looks at the plan and changes it where another one gains enough.
  void adapt() {
    const Stopwatch stopwatch;
    std::optional<ChosenPlan> next = adaptation_->look(trainer_.steps_done());
    if (!next) return;
    const Stopwatch change;
    later_plan_ = std::move(*next);
    plan_ = &*later_plan_;
    const MoveReport moved = trainer_.change_plan(planned_spec(context_, workload_, *plan_));
    operations_.reset();
    adaptation_->note_change(moved, change.elapsed_s());
    context_.log(fmt::format("new plan: {}", summary_text(plan_->plan)));
    if (context_.first.progress == nullptr) return;
    context_.first.progress->say(fmt::format("new plan after {} steps, in {:.2g} s: {}",
                                             trainer_.steps_done(), stopwatch.elapsed_s(),
                                             summary_text(plan_->plan)));
  }

  /// The first rank's wish. In lockstep the gate says how long the run is.
  Directive wanted() {
    if (context_.in_lockstep && phases_.measuring()) {
      return context_.first.turns->is_over() ? Directive::hold : Directive::go_on;
    }
    const std::int64_t begin_ns = now_ns();
    const Directive directive = phases_.next(trainer_.steps_done());
    context_.measuring_s += seconds_since(begin_ns);
    if (const auto& look = phases_.look()) {
      context_.post(LookEvent{look->window.start_ns, look->window.end_ns, look->settled});
      if (look->half_width_fraction) {
        note_ = fmt::format("± {:.2g} %", 100 * *look->half_width_fraction);
      }
    }
    return directive;
  }

  void enter(Phase phase) {
    if (!context_.is_first()) return;
    context_.post(PhaseEvent{phase, std::nullopt});
    if (phase == Phase::finish) return;
    const MeasureConfig& measure = context_.config.measure;
    const bool warmup = phase == Phase::warmup;
    const std::string length = measure.steps > 0 ? fmt::format("to step {}", measure.steps)
                                                 : fmt::format("{:g} s", measure.duration_s);
    context_.show({.phase = warmup ? warmup_name : to_string(phase),
                   .note = warmup ? fmt::format("{} steps", phases_.warmup_steps())
                           : phase == Phase::evaluate ? samples_text(final_)
                                                      : length});
  }

  std::int32_t rank() const { return context_.all_ranks().rank().value(); }

  void note(const StepReport& report) {
    if (tracer_) tracer_->after_step(report);
    check_finite(report);
    if (context_.first.turns != nullptr) context_.first.turns->count_step();
    // Only the measured phase is summed up.
    if (measuring_) {
      // Steps differ where samples have any number of images.
      if (!operations_ || report.images) operations_ = trainer_.session().operations();
      times_.add(report, *operations_);
      if (adaptation_) adaptation_->add(report, trainer_.session().pacing());
    }
    const auto units = static_cast<double>(report.samples *
                                           static_cast<std::uint64_t>(workload_.units_per_sample));
    if (!context_.is_first()) return;
    phases_.add({report.t_start_ns + context_.clock_offset_ns,
                 report.t_end_ns + context_.clock_offset_ns, units});
    if (context_.first.progress == nullptr) return;
    units_ += units;
    if (first_start_ns_ == 0) first_start_ns_ = report.t_start_ns;
    const double seconds = static_cast<double>(report.t_end_ns - first_start_ns_) * 1e-9;
    const bool measuring = phases_.measuring();
    const bool by_time = measuring && context_.config.measure.steps == 0;
    context_.show({measuring ? to_string(Phase::measure) : warmup_name,
                   phases_.fraction(trainer_.steps_done()), by_time ? phases_.elapsed_s() : seconds,
                   units_ / seconds, workload_.unit, report.loss, note_});
  }

  void post_times() {
    const auto times = times_.time_event(rank());
    if (times) context_.post(*times);
    if (const auto steps = times_.compute_event(rank())) context_.post(*steps);
    const auto pacing = trainer_.pacing();
    if (!pacing) return;
    context_.post(PacingEvent{rank(), pacing->dilation, pacing->operations, pacing->late,
                              pacing->worst_lateness_s});
  }

  RankContext& context_;
  const Workload& workload_;
  const ChosenPlan* plan_;                ///< in force
  std::optional<ChosenPlan> later_plan_;  ///< in place of the one that the training began with
  EvaluationExtent final_;
  GroupTrainer trainer_;
  std::optional<StepOperations> operations_;  ///< in one step by the plan in force
  Checkpointing checkpoints_;
  MeasurePhases phases_;  // asked on the first rank
  std::string note_;      // what the last look saw, for the progress line
  StepTimes times_;
  RankTurns turns_;
  std::optional<StepTracer> tracer_;
  std::optional<Adaptation> adaptation_;
  bool measuring_ = false;  // on every rank; phases_ know on the first
  double units_ = 0;
  std::int64_t first_start_ns_ = 0;
};

}  // namespace

void run_training(RankContext& context, const Workload& workload, const ChosenPlan& plan) {
  settle_products(context, planned_spec(context, workload, plan), context.all_ranks().rank());
  TrainingProgram program(context, workload, plan);
  program.finish(program.train());
}

}  // namespace heteroperf
