#pragma once

#include <vector>

#include "runners/plan/times/stage_times.hpp"

namespace heteroperf {

/// A position of a pipeline as its clock needs it, in seconds per micro-batch.
struct ClockStage : StageTimes::Compute {
  double activation_s = 0, gradient_s = 0;  ///< to the next position, and back from it
  int warm_up = 0;                          ///< forwards before the first backward
  double work_s() const { return forward_s + recompute_s + input_gradient_s + weight_gradient_s; }
};

/// The rule by which positions order their passes.
enum class ClockOrder {
  one_f_one_b,  ///< `1f1b` with each position's own warm-up; B and W as one
  zb_h1,        ///< `zb-h1`
  zb_h2,        ///< `zb-h2`
};

/// Every position's end of its last pass when `micro_batches` go through; messages arrive after
/// their time and take none of a device. Exact. `one_f_one_b` requires warm_up never to grow along
/// the pipeline, and to be at least the number of positions that follow, or the number of
/// micro-batches.
std::vector<double> pipeline_ends(const std::vector<ClockStage>& stages, int micro_batches,
                                  ClockOrder order = ClockOrder::one_f_one_b);

/// The end of `1f1b` by formula: the first micro-batch's round trip, then the slowest position's
/// time for each other one, or where warm-ups are too few the longest round trip / micro-batches
/// under way.
double pipeline_estimate(const std::vector<ClockStage>& stages, int micro_batches);

}  // namespace heteroperf
