// The phases of a measurement, for a training and for a group of a search alike. It begins with the
// *warm-up*, a number of steps that are trained and not measured. The *measured phase* follows: its
// clock starts when its directive is given, before the first of its steps. It ends
//
// - after `steps`, where the length is given in steps; these count the whole training, also what
//   earlier runs did, so the warm-up may be all there is;
// - else after `duration_s`, or when the groups of a search have their common end;
// - sooner, once a look at the steps sees the throughput within `until_percent`. How often it looks
//   is the precision goal's matter; the last look comes with the end of the phase.
//
// A *replay* repeats a known number of steps and leaves as if it were stopped, whatever the phase,
// so it evaluates nothing.
#include "suite/training/measure_phases.hpp"

#include <algorithm>
#include <utility>

#include "metrics/rate.hpp"

namespace heteroperf {

std::uint64_t steps_before(const RunConfig& config) {
  return config.parent ? config.parent->step : 0;
}

std::uint64_t warmup_steps_of(const RunConfig& config) {
  const MeasureConfig& measure = config.measure;
  return warmup_steps_of_run(measure.warmup_steps, measure.steps, steps_before(config));
}

MeasurePhases::MeasurePhases(const MeasureConfig& config, std::uint64_t warmup_steps,
                             std::uint64_t steps_before, PhaseClock clock)
    : config_(config),
      warmup_steps_(warmup_steps),
      steps_before_(steps_before),
      clock_(std::move(clock)) {
  if (const auto goal = precision_goal(config)) precision_.emplace(*goal);
}

Directive MeasurePhases::next(std::uint64_t steps_done) {
  look_.reset();
  const Directive directive = next_by_length(steps_done);
  if (!precision_ || !measuring()) return directive;
  if (directive == Directive::next_phase) {
    precision_->begin();
    return directive;
  }
  look_ = precision_->look(directive == Directive::end ? PrecisionWatch::Moment::last
                                                       : PrecisionWatch::Moment::after_step);
  return look_ && look_->reached ? Directive::end : directive;
}

Directive MeasurePhases::next_by_length(std::uint64_t steps_done) {
  const std::uint64_t steps = steps_done - steps_before_;
  if (config_.replay_steps > 0 && steps >= config_.replay_steps) return Directive::interrupt;
  if (config_.steps > 0 && steps_done >= config_.steps) return Directive::end;
  if (!measuring()) {
    if (steps < warmup_steps_) return Directive::go_on;
    start_ns_ = clock_.nanoseconds();
    return Directive::next_phase;
  }
  if (config_.steps > 0) return Directive::go_on;
  const bool over = clock_.is_over ? clock_.is_over() : elapsed_s() >= config_.duration_s;
  return over ? Directive::end : Directive::go_on;
}

void MeasurePhases::add(const StepWork& step) {
  if (precision_) precision_->add(step);
}

double MeasurePhases::fraction(std::uint64_t steps_done) const {
  const auto steps = static_cast<double>(steps_done - steps_before_);
  if (config_.steps > 0) return steps / static_cast<double>(config_.steps - steps_before_);
  if (measuring()) return std::min(1.0, elapsed_s() / config_.duration_s);
  return steps / static_cast<double>(std::max<std::uint64_t>(1, warmup_steps_));
}

}  // namespace heteroperf
