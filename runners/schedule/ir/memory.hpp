#pragma once

#include <vector>

#include "runners/schedule/ir/schedule.hpp"

namespace heteroperf {

/// Activations held, in a rank's activations of one micro-batch. They depend on the order alone.
struct MemoryPeaks {
  /// Freed at W or BW only.
  std::vector<double> activations;  ///< [rank]
  /// F +1, B −½, W −½, BW −1: B frees what W does not need. This is what a limit bounds.
  std::vector<double> memory;  ///< [rank]
};
MemoryPeaks memory_peaks(const Schedule& schedule);

/// What `op` adds to a rank's memory, in activations of the segment (the rule of
/// MemoryPeaks::memory).
constexpr double memory_change(Op op) {
  switch (op) {
    case Op::forward:
      return 1;
    case Op::input_gradient:
    case Op::weight_gradient:
      return -0.5;
    case Op::backward:
      return -1;
    default:
      return 0;
  }
}

}  // namespace heteroperf
