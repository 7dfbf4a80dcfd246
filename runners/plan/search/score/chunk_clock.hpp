#pragma once

#include <vector>

#include "runners/plan/search/score/pass_order.hpp"
#include "runners/plan/search/score/pipeline_clock.hpp"

namespace heteroperf {

/// When the passes of a pipeline of several chunks per position end.
struct ChunkEnds {
  IdVector<PositionId, double> positions;  ///< end of the last pass
  IdVector<StageId, double> stages;        ///< end of the stage's last weight gradient
};

/// Exact, by the rules of pipeline_ends(). `stages`: in the model's order, as many as the order
/// has.
ChunkEnds chunk_ends(const std::vector<ClockStage>& stages, const PassOrder& order);

}  // namespace heteroperf
