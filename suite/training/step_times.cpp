// Two summaries of the steps of one rank, in constant memory. The computing times are a series that
// shows drift and stragglers: when it is full, neighbouring values merge and each then stands for
// twice as many steps. The others are totals; what lies between the end of a step and the start of
// the next is charged to `other_s`, so the parts always add up to the wall time.
#include "suite/training/step_times.hpp"

#include <algorithm>
#include <cmath>

#include "metrics/base/quantity.hpp"

namespace heteroperf {

void StepTimes::add(const StepReport& report, const StepOperations& operations) {
  if (steps_ == 0) {
    first_step_ = report.step;
    start_ns_ = end_ns_ = report.t_start_ns;
  }
  const TimeSplit& split = report.split;
  sums_.add({split.compute_s, split.communication_s, split.bubble_s, split.data_s, split.other_s});
  sums_.other_s += static_cast<double>(report.t_start_ns - end_ns_) * nanosecond;
  end_ns_ = report.t_end_ns;
  keep_compute(report.split.compute_s);
  operations_.add(operations);
  for (std::size_t i = 0; i < components_.size(); ++i) {
    const ComponentStep& step = report.components.at(i);
    ComponentStep& sum = components_[i];
    sum.compute_s = sum.compute_s && step.compute_s
                        ? std::optional(*sum.compute_s + *step.compute_s)
                        : std::nullopt;
    sum.border_bytes += step.border_bytes;
  }
  ++steps_;
}

void StepTimes::keep_compute(double compute_s) {
  std::vector<double>& sums_s = compute_sums_s_;
  if (steps_ % steps_per_value_ == 0) {
    // The last value is complete here, so all values merged have the same weight.
    if (sums_s.size() == most_values) {
      for (std::size_t i = 0; i < most_values / 2; ++i) {
        sums_s[i] = sums_s[2 * i] + sums_s[2 * i + 1];
      }
      sums_s.resize(most_values / 2);
      steps_per_value_ *= 2;
    }
    sums_s.push_back(0);
  }
  sums_s.back() += compute_s;
}

std::optional<RankStepsEvent> StepTimes::compute_event(std::int32_t rank) const {
  if (steps_ == 0) return std::nullopt;
  RankStepsEvent event{rank, 0, first_step_, steps_, steps_per_value_, {}};
  std::uint64_t left = steps_;
  for (const double sum_s : compute_sums_s_) {
    const std::uint64_t steps = std::min(left, steps_per_value_);
    event.compute_ns.push_back(std::llround(sum_s / static_cast<double>(steps) / nanosecond));
    left -= steps;
  }
  return event;
}

std::optional<RankTimeEvent> StepTimes::time_event(std::int32_t rank) const {
  if (steps_ == 0) return std::nullopt;
  const double wall_s = static_cast<double>(end_ns_ - start_ns_) * nanosecond;
  RankTimeEvent event{rank,   0,     first_step_,        steps_,
                      wall_s, sums_, operations_.strict, operations_.recompute};
  for (std::size_t i = 0; i < names_.size(); ++i) {
    const StepOperations& operations = operations_.components[i];
    event.components.push_back({names_[i], components_[i].compute_s, operations.strict,
                                operations.recompute, components_[i].border_bytes});
  }
  return event;
}

}  // namespace heteroperf
