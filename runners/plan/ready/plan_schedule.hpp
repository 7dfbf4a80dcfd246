#pragma once

#include <algorithm>
#include <vector>

#include "runners/plan/plan.hpp"
#include "runners/plan/staged_graph.hpp"
#include "runners/plan/times/stage_times.hpp"
#include "runners/schedule/ir/schedule.hpp"

namespace heteroperf {

/// Where in the pipeline a rank of a plan works, and as what.
struct RankRole {
  PositionId position;  ///< which program of the schedule it runs, its own segments' part of it
  /// A segment of the schedule that lies on its position.
  struct Part {
    SegmentId segment;
    StageId stage;
    ReplicaId replica;
    int tensor_index = 0;  ///< within the replica
  };
  std::vector<Part> parts;  ///< by segment

  bool has(SegmentId segment) const {
    return std::ranges::find(parts, segment, &Part::segment) != parts.end();
  }
};

/// A micro-batch's tensors on the fullest rank of a stage, as shares of the rank's room: of the
/// memory that its states and its fullest pass leave.
struct StageShare {
  double kept = 0;   ///< from F to B
  double split = 0;  ///< from B to W
};
using StageShares = IdVector<StageId, StageShare>;

/// The lowered schedule of a plan. Segment s < stages is stage s going down; in a two-way schedule
/// segment stages + s is its copy going up. RECOMPUTE stands before the first gradient of every
/// micro-batch of a stage that recomputes in full. Without times every stage costs the same. An
/// order that is searched keeps within the room that `shares` tell of; without them it has no
/// limit. Throws UserError where generator or lowering refuse, or where schedule and plan do not
/// fit (number of stages, ranks that a fixed placement puts on two positions, a tied weight whose
/// stages have a part of a replica's ranks in common).
Schedule plan_schedule(const ModelGraph& graph, const StagedGraph& staged, const Plan& plan,
                       const StageTimes* times = nullptr, const StageShares& shares = {});

/// [rank][part]: what every rank of the plan holds, without a schedule; the result has an entry for
/// every rank up to the plan's largest.
std::vector<std::vector<RankRole::Part>> rank_parts(const Plan& plan);

/// The role of every rank of the plan. `schedule` is the plan's own.
/// The result has an entry for every rank up to the plan's largest.
std::vector<RankRole> rank_roles(const Plan& plan, const Schedule& schedule);

}  // namespace heteroperf
