#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "metrics/base/clock.hpp"
#include "metrics/precision_goal.hpp"
#include "suite/config/run_config.hpp"
#include "suite/ranks/rank_context.hpp"

namespace heteroperf {

/// Steps of the training that earlier runs did; those of --steps count them too.
std::uint64_t steps_before(const RunConfig& config);
/// Steps of warm-up of a training of one model: at most half of those that this run does.
std::uint64_t warmup_steps_of(const RunConfig& config);

/// The time that phases go by.
struct PhaseClock {
  std::function<std::int64_t()> nanoseconds = now_ns;
  /// Says that the time of the measured phase is over; absent: the duration has passed.
  std::function<bool()> is_over = {};
};

/// Decides before each step what comes next; only the leader of a group asks. `config` outlives it.
class MeasurePhases {
 public:
  /// `warmup_steps`: of this run; `steps_before`: what earlier runs of the training did.
  MeasurePhases(const MeasureConfig& config, std::uint64_t warmup_steps, std::uint64_t steps_before,
                PhaseClock clock = {});

  /// `next_phase` is told once: the measured phase begins with the step that follows.
  Directive next(std::uint64_t steps_done);
  /// Takes note of the next step, in order; a goal of precision is judged by them.
  void add(const StepWork& step);
  /// The look at the throughput that the last next() took, if it took one.
  const std::optional<PrecisionLook>& look() const { return look_; }

  std::uint64_t warmup_steps() const { return warmup_steps_; }
  bool measuring() const { return start_ns_.has_value(); }
  /// Seconds of the measured phase so far.
  double elapsed_s() const { return static_cast<double>(clock_.nanoseconds() - *start_ns_) * 1e-9; }
  /// The share that is done, for the progress line alone: of all steps where their number is given,
  /// else of the current phase.
  double fraction(std::uint64_t steps_done) const;

 private:
  Directive next_by_length(std::uint64_t steps_done);

  const MeasureConfig& config_;
  std::uint64_t warmup_steps_, steps_before_;
  PhaseClock clock_;
  std::optional<std::int64_t> start_ns_;
  std::optional<PrecisionWatch> precision_;
  std::optional<PrecisionLook> look_;
};

}  // namespace heteroperf
