// The loop of a rank that trains one fixed model by a plan. Before each step rank 0 chooses a
// *directive* (go on, measure from here, hold, end, stop) and broadcasts it, so that all ranks do
// the same steps even though only rank 0 looks at the clock, at signals, and at how well the
// throughput is known.
//
// Phases are warm-up and measure (measure_phases.hpp), finish, evaluate; rank 0 posts a line at the
// start of each, which is what cuts the *steady window* out of the journal later. In lockstep,
// where a gate alternates between two programs, the gate decides how many steps come next and the
// run stands still in between.

#include "suite/training/group_trainer.hpp"

#include <fmt/format.h>

#include <cmath>

#include "metrics/base/clock.hpp"
#include "suite/training/checkpointing.hpp"
#include "suite/training/measure_phases.hpp"
#include "suite/training/step_times.hpp"
#include "suite/training/step_trace.hpp"
#include "suite/training/turn_taker.hpp"

namespace heteroperf {
namespace {

constexpr const char* warmup_name = "warm-up";

/// A loss that is not finite never recovers, so the run ends at once with advice.
void check_finite(const StepReport& report) {
  if (std::isfinite(report.loss) && std::isfinite(report.gradient_norm)) return;
  throw Error(ErrorKind::run_failed,
              {{fmt::format("the loss is not finite at step {} (loss {}, gradient norm {})",
                            report.step, report.loss, report.gradient_norm),
                fmt::format("learning rate {}", report.learning_rate),
                "Try --set optimizer.learning_rate=… lower, or --set optimizer.clip_norm=1"}});
}

/// Emulated ranks share the cores of their hosts, which the pacing must know.
TrainingSpec planned_spec(const RankContext& context, const Workload& workload,
                          const ChosenPlan& chosen) {
  TrainingSpec spec = training_spec(context, workload);
  spec.ready = std::make_shared<const ReadyPlan>(chosen);
  if (chosen.emulated) {
    spec.pacing =
        Pacing{*chosen.paced, context.config.pace.dilation, core_count(context.placement)};
  }
  return spec;
}

/// One rank of every process says what it uses.
bool speaks_for_process(const RankContext& context) {
  return context.is_first() || context.config.scale.transport != Transport::threads;
}

/// One rank of one training, from the first step to the last evaluation.
class TrainingProgram {
 public:
  TrainingProgram(RankContext& context, const Workload& workload, const ChosenPlan& plan)
      : context_(context),
        workload_(workload),
        plan_(plan),
        final_(final_extent(context.config, workload, &plan)),
        trainer_(context, context.all_ranks(), 0, std::nullopt,
                 planned_spec(context, workload, plan)),
        checkpoints_(context, [this](const std::string& folder) { return trainer_.save(folder); }),
        phases_(context.config.measure, warmup_steps_of(context.config),
                steps_before(context.config)),
        turns_(context, speaks_for_process(context)) {
    if (!context.config.trace.empty()) tracer_.emplace(context.config.measure.steps);
  }

  ProgramEnd run() {
    if (const auto& parent = context_.config.parent) {
      trainer_.restore(parent->checkpoint, parent->step);
    }
    enter(Phase::warmup);
    ProgramEnd end;
    for (;;) {
      // Exactly one directive per turn of this loop, the same on all ranks.
      const Directive directive = next();
      if (directive == Directive::end) break;
      if (directive == Directive::interrupt) {
        end.interrupted = true;
        break;
      }
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
        end.interrupted = order.kind == TurnOrder::Kind::interrupt;
        break;
      }
      if (tracer_) trainer_.trace_to(tracer_->before_step(measuring_, trainer_.steps_done()));
      note(trainer_.step());
      checkpoints_.after_step(trainer_.steps_done());
    }
    // Nothing that follows is training: the window of OPS ends here.
    enter(Phase::finish);
    checkpoints_.at_end(trainer_.steps_done(), end.interrupted ? Checkpointing::End::interrupted
                                                               : Checkpointing::End::complete);
    trainer_.post_checksums(held_share(plan_.plan, plan_.roles[rank()]));
    post_times();
    if (tracer_) write_step_trace(context_, plan_, tracer_->steps());
    if (!end.interrupted && !context_.in_lockstep) end.interrupted = !evaluate();
    return end;
  }

  MemoryReport memory() const { return trainer_.memory(); }

 private:
  Directive next() {
    Directive mine = Directive::go_on;
    if (context_.is_first()) {
      mine = stop_wanted(context_) ? Directive::interrupt : wanted();
    } else {
      stop_wanted(context_);
    }
    return agree(context_.all_ranks(), mine);
  }

  /// The first rank's wish. In lockstep the gate says how long the run is.
  Directive wanted() {
    if (!context_.in_lockstep || !phases_.measuring()) {
      const Directive directive = next_by_phases();
      if (context_.in_lockstep && directive == Directive::next_phase) context_.first.turns->begin();
      return directive;
    }
    return context_.first.turns->is_over() ? Directive::hold : Directive::go_on;
  }

  Directive next_by_phases() {
    Directive directive = Directive::go_on;
    {
      const ScopedSeconds measured(&context_.measuring_s);
      directive = phases_.next(trainer_.steps_done());
    }
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
    context_.show(beginning(warmup ? warmup_name : to_string(phase),
                            warmup ? fmt::format("{} steps", phases_.warmup_steps())
                            : phase == Phase::evaluate ? samples_text(final_)
                                                       : length));
  }

  std::int32_t rank() const { return context_.all_ranks().rank().value(); }

  void note(const StepReport& report) {
    if (tracer_) tracer_->after_step(report);
    check_finite(report);
    if (context_.first.turns != nullptr) context_.first.turns->count_step();
    // Only the measured phase is summed up.
    if (measuring_) times_.add(report);
    const auto units = static_cast<double>(report.samples *
                                           static_cast<std::uint64_t>(workload_.units_per_sample));
    if (!context_.is_first()) return;
    phases_.add({report.t_start_ns + context_.clock_offset_ns,
                 report.t_end_ns + context_.clock_offset_ns, units});
    if (context_.first.progress == nullptr) return;
    units_ += units;
    const double seconds = static_cast<double>(report.t_end_ns - first_start_ns(report)) * 1e-9;
    const bool measuring = phases_.measuring();
    const bool by_time = measuring && context_.config.measure.steps == 0;
    context_.show({measuring ? to_string(Phase::measure) : warmup_name,
                   phases_.fraction(trainer_.steps_done()), by_time ? phases_.elapsed_s() : seconds,
                   units_ / seconds, workload_.unit, report.loss, note_});
  }

  std::int64_t first_start_ns(const StepReport& report) {
    if (first_start_ns_ == 0) first_start_ns_ = report.t_start_ns;
    return first_start_ns_;
  }

  void post_times() {
    const auto times = times_.time_event(rank(), trainer_.session().operations());
    if (times) context_.post(*times);
    if (const auto steps = times_.compute_event(rank())) context_.post(*steps);
    const auto pacing = trainer_.session().pacing();
    if (!pacing) return;
    context_.post(PacingEvent{rank(), pacing->dilation, pacing->operations, pacing->late,
                              pacing->worst_lateness_s});
  }

  /// False when it was interrupted.
  bool evaluate() {
    enter(Phase::evaluate);
    return trainer_.evaluate(final_).has_value();
  }

  RankContext& context_;
  const Workload& workload_;
  const ChosenPlan& plan_;
  EvaluationExtent final_;
  GroupTrainer trainer_;
  Checkpointing checkpoints_;
  MeasurePhases phases_;  // asked on the first rank
  std::string note_;      // what the last look saw, for the progress line
  StepTimes times_;
  RankTurns turns_;
  std::optional<StepTracer> tracer_;
  bool measuring_ = false;  // on every rank; phases_ know on the first
  double units_ = 0;
  std::int64_t first_start_ns_ = 0;
};

}  // namespace

ProgramEnd run_training(RankContext& context, const Workload& workload, const ChosenPlan& plan) {
  TrainingProgram program(context, workload, plan);
  const ProgramEnd end = program.run();
  context.post(MemoryEvent{context.all_ranks().rank().value(), program.memory().peak_bytes});
  return end;
}

}  // namespace heteroperf
