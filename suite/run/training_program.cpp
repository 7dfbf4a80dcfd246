#include "suite/run/training_program.hpp"

#include <fmt/format.h>

#include <cmath>

#include "suite/run/clock.hpp"
#include "suite/run/group_trainer.hpp"

namespace heteroperf {
namespace {

/// Warm-up then measurement, by steps or by time; decided by the group's leader.
class Schedule {
 public:
  explicit Schedule(const MeasureConfig& config) : config_(config) {}

  Directive next(std::uint64_t steps_done) {
    if (config_.steps > 0 && steps_done >= config_.steps) return Directive::end;
    if (measure_start_ns_ == 0) {
      if (steps_done < warmup_steps()) return Directive::go_on;
      measure_start_ns_ = now_ns();
      return Directive::next_phase;
    }
    return config_.steps == 0 && elapsed_s() >= config_.duration_s ? Directive::end
                                                                   : Directive::go_on;
  }

  bool measuring() const { return measure_start_ns_ != 0; }
  double elapsed_s() const { return static_cast<double>(now_ns() - measure_start_ns_) * 1e-9; }
  double fraction(std::uint64_t steps_done) const {
    if (config_.steps > 0)
      return static_cast<double>(steps_done) / static_cast<double>(config_.steps);
    return measuring() ? std::min(1.0, elapsed_s() / config_.duration_s) : 0.0;
  }

 private:
  std::uint64_t warmup_steps() const {
    return config_.steps > 0 ? std::min(config_.warmup_steps, config_.steps / 2)
                             : config_.warmup_steps;
  }

  const MeasureConfig& config_;
  std::int64_t measure_start_ns_ = 0;
};

void check_finite(const StepReport& report) {
  if (std::isfinite(report.loss) && std::isfinite(report.gradient_norm)) return;
  throw Error(ErrorKind::run_failed,
              {{fmt::format("the loss is not finite at step {} (loss {}, gradient norm {})",
                            report.step, report.loss, report.gradient_norm),
                fmt::format("learning rate {}", report.learning_rate),
                "Try --set optimizer.learning_rate=… lower, or --set optimizer.clip_norm=1"}});
}

class TrainingProgram {
 public:
  TrainingProgram(RankContext& context, const Workload& workload)
      : context_(context),
        workload_(workload),
        trainer_(context, context.all_ranks(), 0, std::nullopt, training_spec(context, workload)),
        schedule_(context.config.measure) {}

  ProgramEnd run() {
    enter(Phase::warmup);
    ProgramEnd end;
    for (;;) {
      const Directive directive = next();
      if (directive == Directive::end) break;
      if (directive == Directive::interrupt) {
        end.interrupted = true;
        break;
      }
      if (directive == Directive::next_phase) enter(Phase::measure);
      train_one();
    }
    trainer_.post_checksums();
    if (!end.interrupted) end.interrupted = !evaluate();
    return end;
  }

  MemoryReport memory() const { return trainer_.memory(); }

 private:
  Directive next() {
    Directive mine = Directive::go_on;
    if (context_.is_first()) {
      mine = stop_wanted(context_) ? Directive::interrupt : schedule_.next(trainer_.steps_done());
    } else {
      stop_wanted(context_);
    }
    return agree(context_.all_ranks(), mine);
  }

  void enter(Phase phase) {
    if (context_.is_first()) context_.post(PhaseEvent{phase, std::nullopt});
  }

  void train_one() {
    const StepReport report = trainer_.step();
    check_finite(report);
    if (context_.progress == nullptr) return;
    units_ += static_cast<double>(report.samples *
                                  static_cast<std::uint64_t>(workload_.units_per_sample));
    const double seconds = static_cast<double>(report.t_end_ns - first_start_ns(report)) * 1e-9;
    context_.show({schedule_.measuring() ? "measure" : "warm-up",
                   schedule_.fraction(trainer_.steps_done()), seconds, units_ / seconds,
                   workload_.unit, report.loss, ""});
  }

  std::int64_t first_start_ns(const StepReport& report) {
    if (first_start_ns_ == 0) first_start_ns_ = report.t_start_ns;
    return first_start_ns_;
  }

  /// False when it was interrupted.
  bool evaluate() {
    enter(Phase::evaluate);
    const auto go_on = [this] {
      const Directive mine = stop_wanted(context_) ? Directive::interrupt : Directive::go_on;
      return agree(context_.all_ranks(), mine) == Directive::go_on;
    };
    return trainer_.evaluate(context_.config.measure.evaluation_samples, go_on).has_value();
  }

  RankContext& context_;
  const Workload& workload_;
  GroupTrainer trainer_;
  Schedule schedule_;
  double units_ = 0;
  std::int64_t first_start_ns_ = 0;
};

}  // namespace

TrainingSpec training_spec(const RankContext& context, const Workload& workload) {
  TrainingSpec spec;
  spec.graph = workload.graph;
  spec.data = workload.data;
  spec.recipe = workload.recipe;
  spec.precision = workload.precision;
  spec.micro_batch = workload.micro_batch;
  spec.micro_batches = workload.micro_batches;
  spec.seed = context.config.seed;
  spec.threads = context.placement.threads_per_rank;
  return spec;
}

ProgramEnd run_training(RankContext& context, const Workload& workload) {
  TrainingProgram program(context, workload);
  const ProgramEnd end = program.run();
  context.post(MemoryEvent{context.all_ranks().rank().value(), program.memory().peak_bytes});
  return end;
}

}  // namespace heteroperf
