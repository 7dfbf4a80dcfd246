#pragma once

#include <vector>

namespace heteroperf {

/// A position of a pipeline as its clock needs it, in seconds per micro-batch.
struct ClockStage {
  double forward_s = 0, recompute_s = 0, backward_s = 0;
  double activation_s = 0, gradient_s = 0;  ///< to the next position, and back from it
  int warm_up = 0;                          ///< forwards before the first backward
};

/// Every position's end of its last backward when `micro_batches` pass: `warm_up` forwards, then
/// forwards and backwards in turn, then the remaining backwards; messages arrive after their time
/// and take none of a device. Exact. Requires warm_up never to grow along the pipeline, and to be
/// at least the number of positions that follow, or the number of micro-batches.
std::vector<double> pipeline_ends(const std::vector<ClockStage>& stages, int micro_batches);

/// The same by formula, for all positions together: the first micro-batch's round trip, then the
/// slowest position's time for each other one, or where warm-ups are too few the longest round trip
/// / micro-batches under way.
double pipeline_estimate(const std::vector<ClockStage>& stages, int micro_batches);

}  // namespace heteroperf
