#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "results/journal/events.hpp"
#include "runners/engine/training.hpp"

namespace heteroperf {

/// Sums where the time of this rank's steps goes, and keeps their computing times. Once there are
/// `most_values` of these, neighbours become their mean: a run of any length leaves between half as
/// many and that many values.
class StepTimes {
 public:
  static constexpr std::size_t most_values = 256;

  /// `components` are the names of those that the reports tell apart.
  explicit StepTimes(std::vector<std::string> components = {})
      : names_(std::move(components)), components_(names_.size()) {
    operations_.components.resize(names_.size());
  }

  /// In order. What lies between two steps is `other_s`. `operations` are those of this step.
  void add(const StepReport& report, const StepOperations& operations);
  /// The next step comes so much later because the run stood still: no part of anything.
  void leave_out(std::int64_t held_ns) { start_ns_ += held_ns, end_ns_ += held_ns; }
  /// Both tell nothing without a step.
  std::optional<RankTimeEvent> time_event(std::int32_t rank) const;
  std::optional<RankStepsEvent> compute_event(std::int32_t rank) const;

 private:
  void keep_compute(double compute_s);

  std::uint64_t first_step_ = 0, steps_ = 0, steps_per_value_ = 1;
  std::int64_t start_ns_ = 0, end_ns_ = 0;
  StepSplit sums_;
  std::vector<std::string> names_;
  std::vector<ComponentStep> components_;  ///< summed over all steps
  StepOperations operations_;              ///< the same
  std::vector<double> compute_sums_s_;     ///< each sums steps_per_value_ steps, the last one fewer
};

}  // namespace heteroperf
