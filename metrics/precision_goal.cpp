#include "metrics/precision_goal.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "metrics/base/error.hpp"
#include "metrics/statistics.hpp"

// `run --until 1%` looks at the rate's interval at doubling numbers of steps and ends once it is
// narrow enough. Each *look* gets a smaller share of the allowed chance to miss the true rate, so
// that many looks together stay within it. The interval comes from few long blocks, because a drift
// over seconds would not show in the differences of short ones.

namespace heteroperf {
namespace {

constexpr double longest_forecast = 100;  // in units of the window that was measured
/// Halving the noise takes four times as long. An interval that kept this share of its width over
/// twice the time or more shows no sign of becoming narrower.
constexpr double not_narrower = 0.95;

/// This factor keeps rounding from making an interval wider than was asked for.
constexpr double just_inside = 1 - 1e-12;

bool narrows(std::span<const PrecisionLook> looks) {
  if (looks.size() < 2) return true;
  const PrecisionLook& last = looks.back();
  const auto before = std::find_if(looks.rbegin() + 1, looks.rend(), [&](const auto& look) {
    return look.half_width_fraction && 2 * look.window.seconds() <= last.window.seconds();
  });
  return before == looks.rend() ||
         *last.half_width_fraction < not_narrower * *before->half_width_fraction;
}

/// A few long blocks show slow drifts. At the coverage of a look their interval is so wide that no
/// measurement would end by it. So a measurement ends by an interval of this coverage, and reports
/// the wide one where it did not reach its goal.
constexpr double drift_coverage = 0.95;

/// Moves each side of `fine`, the interval in `blocks`, out to that of the interval in the fewest
/// blocks, of this coverage, where the latter goes farther.
Interval widened(const Interval& fine, const PrecisionGoal& goal, std::span<const StepWork> steps,
                 TimeWindow window, double coverage) {
  if (goal.fewest_blocks == goal.blocks) return fine;
  const auto coarse = rate_interval_in_blocks(steps, window, {goal.fewest_blocks, coverage});
  return {std::min(fine.low, coarse->low), std::max(fine.high, coarse->high)};
}

}  // namespace

double PrecisionGoal::coverage(std::size_t look) const {
  HETEROPERF_EXPECT(look > 0);
  const auto k = static_cast<double>(look);
  return 1 - misses / (k * (k + 1));
}

std::size_t most_looks(std::size_t steps) {
  return static_cast<std::size_t>(std::bit_width(steps)) + 1;
}

PrecisionLook look_at(const PrecisionGoal& goal, std::size_t number,
                      std::span<const StepWork> steps, TimeWindow window, bool settled) {
  PrecisionLook look{window, settled, 0, goal.coverage(number), {}};
  for (const StepWork& step : steps) look.steps += window.contains(step.end_ns);
  const auto fine = rate_interval_in_blocks(steps, window, {goal.blocks, look.coverage});
  if (!fine) return look;
  const Interval held =
      widened(*fine, goal, steps, window, std::min(look.coverage, drift_coverage));
  const double rate = rate_per_second(steps, window);
  look.half_width_fraction = std::max(rate - held.low, held.high - rate) / rate;
  look.reached = settled && *look.half_width_fraction <= goal.fraction;
  const double half_width = rate * goal.fraction * just_inside;
  look.interval = look.reached ? Interval{rate - half_width, rate + half_width}
                               : widened(*fine, goal, steps, window, look.coverage);
  return look;
}

std::optional<NeededTime> time_needed(const PrecisionGoal& goal,
                                      std::span<const PrecisionLook> looks) {
  if (looks.empty() || !looks.back().half_width_fraction) return std::nullopt;
  const double length_s = looks.back().window.seconds();
  const double ratio = *looks.back().half_width_fraction / goal.fraction;
  if (ratio <= 1) return std::nullopt;
  double times = ratio * ratio;
  const auto further = static_cast<std::size_t>(std::ceil(std::log2(times)));
  const int degrees = static_cast<int>(goal.blocks) - 1;
  const double wider = even_student_t_quantile(goal.coverage(looks.size() + further), degrees) /
                       even_student_t_quantile(goal.coverage(looks.size()), degrees);
  times *= wider * wider;
  return NeededTime{length_s * std::min(times, longest_forecast),
                    times > longest_forecast || !narrows(looks)};
}

bool PrecisionWatch::is_due() const {
  const std::size_t measured = steps_.size() - warmup_steps_;
  if (measured == 0) return false;
  if (next_look_ > 0) return measured == next_look_;
  const TimeWindow phase{steps_[warmup_steps_].start_ns, steps_.back().end_ns};
  return measured >= goal_.fewest_steps && phase.seconds() >= goal_.fewest_s;
}

std::optional<PrecisionLook> PrecisionWatch::look(Moment moment) {
  if (steps_.size() == warmup_steps_) return std::nullopt;
  if (moment == Moment::after_step && !is_due()) return std::nullopt;
  next_look_ = 2 * (steps_.size() - warmup_steps_);
  std::vector<std::int64_t> durations_ns;
  for (const StepWork& step : steps_) durations_ns.push_back(step.end_ns - step.start_ns);
  const SteadyWindow steady = find_steady_window(durations_ns);
  const std::size_t first =
      std::min(std::max(warmup_steps_, steady.warmup_steps), steps_.size() - 1);
  return look_at(goal_, ++looks_, steps_, {steps_[first].start_ns, steps_.back().end_ns},
                 steady.end == WarmupEnd::settled);
}

}  // namespace heteroperf
