#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "results/journal/events.hpp"
#include "runners/engine/training.hpp"

namespace heteroperf {

/// Keeps the computing times of this rank's steps. Once it holds `most_values`, neighbours become
/// their mean: a run of any length leaves between half as many and that many values.
class ComputeSamples {
 public:
  static constexpr std::size_t most_values = 256;

  /// In order.
  void add(const StepReport& report);
  /// Nothing without a step.
  std::optional<RankStepsEvent> event(std::int32_t rank) const;

 private:
  std::uint64_t first_step_ = 0, steps_ = 0, steps_per_value_ = 1;
  std::vector<double> sums_s_;  ///< each sums steps_per_value_ steps, the last one fewer
};

/// Sums where the time of this rank goes, step after step.
class SplitSums {
 public:
  /// In order. What lies between two steps is `other_s`.
  void add(const StepReport& report);
  /// The next step comes so much later because the run stood still: no part of anything.
  void leave_out(std::int64_t held_ns) { start_ns_ += held_ns, end_ns_ += held_ns; }
  /// Nothing without a step. `operations` are those of one step.
  std::optional<RankTimeEvent> event(std::int32_t rank, const StepOperations& operations) const;

 private:
  std::uint64_t first_step_ = 0, steps_ = 0;
  std::int64_t start_ns_ = 0, end_ns_ = 0;
  StepSplit sums_;
};

}  // namespace heteroperf
