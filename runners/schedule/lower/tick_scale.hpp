#pragma once

#include <cmath>
#include <cstdint>

#include "runners/schedule/ir/pipeline_graph.hpp"

namespace heteroperf {

/// Time as whole numbers, so that what happens at once does so on every machine.
using Ticks = std::int64_t;
constexpr Ticks most_ticks = Ticks{1} << 61;

/// Ticks so small that all of a graph's work and messages one after the other just fit.
class TickScale {
 public:
  explicit TickScale(const PipelineGraph& graph);
  /// Where nothing costs anything, or more than can be added up, all happens at once.
  Ticks ticks(double time) const {
    return timed_ ? std::llround(std::ldexp(time, scale_exponent_)) : 0;
  }

 private:
  int scale_exponent_ = 0;
  bool timed_ = false;
};

}  // namespace heteroperf
