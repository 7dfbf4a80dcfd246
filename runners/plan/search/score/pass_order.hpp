#pragma once

#include <string>
#include <vector>

#include "runners/plan/plan.hpp"
#include "runners/plan/search/score/pipeline_clock.hpp"
#include "runners/schedule/ir/schedule.hpp"

namespace heteroperf {

/// The order in which the positions of a schedule of several chunks do their passes, whatever
/// these take.
class PassOrder {
 public:
  struct Pass {
    Op op;
    StageId stage;
    MicroBatchId micro_batch;
  };

  /// Makes the order of `interleaved-1f1b`, `zb-v`, `v-half` or `v-min`. Throws UserError where its
  /// definition does not allow the numbers.
  PassOrder(const std::string& schedule, int positions, int chunks, int micro_batches);

  int positions() const { return static_cast<int>(fullest_.size()); }
  int micro_batches() const { return micro_batches_; }
  PositionId position_of(StageId stage) const { return position_of_[stage]; }
  /// The stages of a position, in the model's order: its chunks.
  const std::vector<StageId>& stages_of(PositionId position) const { return stages_of_[position]; }
  /// The passes of all positions, each after those that it needs.
  const std::vector<Pass>& passes() const { return passes_; }
  /// Micro-batches that a position keeps at once, of v chunks: [0, v) from F to B, [v, 2v) from B
  /// to W. Moments that another exceeds in everything are left out.
  const std::vector<std::vector<int>>& fullest(PositionId position) const {
    return fullest_[position];
  }

 private:
  using Program = std::vector<Instruction>;
  void join(const std::vector<Program>& programs);
  std::vector<std::vector<int>> fullest_of(const Program& program) const;

  int micro_batches_ = 1;
  IdVector<StageId, PositionId> position_of_;
  IdVector<StageId, int> chunk_of_;
  IdVector<PositionId, std::vector<StageId>> stages_of_;
  std::vector<Pass> passes_;
  IdVector<PositionId, std::vector<std::vector<int>>> fullest_;
};

/// When the passes of a pipeline of several chunks per position end.
struct ChunkEnds {
  IdVector<PositionId, double> positions;  ///< end of the last pass
  IdVector<StageId, double> stages;        ///< end of the stage's last weight gradient
};

/// Exact, by the rules of pipeline_ends(). `stages`: in the model's order, as many as the order
/// has.
ChunkEnds chunk_ends(const std::vector<ClockStage>& stages, const PassOrder& order);

}  // namespace heteroperf
