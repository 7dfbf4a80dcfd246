#pragma once

#include <cstdint>
#include <optional>

#include "results/events.hpp"
#include "runners/engine/training.hpp"

namespace heteroperf {

/// Sums where the time of this rank goes, step after step.
class SplitSums {
 public:
  /// In order. What lies between two steps is `other_s`.
  void add(const StepReport& report);
  /// Nothing without a step. `operations` are those of one step.
  std::optional<RankTimeEvent> event(std::int32_t rank, const StepOperations& operations) const;

 private:
  std::uint64_t first_step_ = 0, steps_ = 0;
  std::int64_t start_ns_ = 0, end_ns_ = 0;
  StepSplit sums_;
};

}  // namespace heteroperf
