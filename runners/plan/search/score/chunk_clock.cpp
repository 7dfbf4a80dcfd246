// The exact clock of pipelines of several chunks per position.
//
// The order of passes is known beforehand (PassOrder) and lists every pass after those that it
// needs. So one walk over the list is enough: each pass starts at the later of the end of its
// position's pass before it and the arrival of its input. A *slot* is one micro-batch in one stage;
// its neighbours in the model lie `micro_batches` slots away. Messages between stages of one
// position take no time, because the scorer gives them none.
#include "runners/plan/search/score/chunk_clock.hpp"

#include <algorithm>
#include <cstddef>

#include "metrics/base/quantity.hpp"

namespace heteroperf {
namespace {

/// A stage with its place, and its messages where they leave it.
struct PlacedStage {
  ClockStage times;
  PositionId position;
  double from_before_s = 0, from_next_s = 0;
};

std::vector<PlacedStage> placed(const std::vector<ClockStage>& stages, const PassOrder& order) {
  std::vector<PlacedStage> result;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    result.push_back({stages[s], order.position_of(StageId(s)), 0, 0});
    if (s == 0) continue;
    result[s].from_before_s = stages[s - 1].activation_s;
    result[s - 1].from_next_s = stages[s - 1].gradient_s;
  }
  return result;
}

}  // namespace

ChunkEnds chunk_ends(const std::vector<ClockStage>& stages, const PassOrder& order) {
  const std::vector<PlacedStage> at = placed(stages, order);
  const std::size_t micro_batches = order.micro_batches();
  std::vector<double> forward_end(stages.size() * micro_batches), backward_end(forward_end);
  ChunkEnds ends{IdVector<PositionId, double>(order.positions(), 0),
                 IdVector<StageId, double>(stages.size(), 0)};
  for (const PassOrder::Pass& pass : order.passes()) {
    const std::size_t s = pass.stage.index();
    const std::size_t slot = s * micro_batches + pass.micro_batch.index();
    const PlacedStage& stage = at[s];
    double& free = ends.positions[stage.position];
    if (pass.op == Op::forward) {
      const double arrived = s > 0 ? forward_end[slot - micro_batches] + stage.from_before_s : 0;
      free = forward_end[slot] = std::max(free, arrived) + stage.times.forward_s;
      continue;
    }
    if (pass.op != Op::weight_gradient) {
      const bool last = s + 1 == stages.size();
      const double arrived = last ? 0 : backward_end[slot + micro_batches] + stage.from_next_s;
      // Recomputation needs no gradient: it fills the wait.
      free = std::max(free + stage.times.recompute_s, arrived) + stage.times.input_gradient_s;
    }
    if (pass.op != Op::input_gradient) free += stage.times.weight_gradient_s;
    if (pass.op != Op::weight_gradient) backward_end[slot] = free;
    if (pass.op != Op::input_gradient) ends.stages[pass.stage] = free;
  }
  return ends;
}

}  // namespace heteroperf
