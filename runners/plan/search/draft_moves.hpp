#pragma once

#include <functional>
#include <string>
#include <vector>

#include "runners/plan/search/stage_filler.hpp"

namespace heteroperf {

/// Things that local search may change beside cuts, shares, degrees and recomputation.
struct MoveRules {
  WireFormat coarsest_wire = WireFormat::fp32;
  /// A coarser wire must shorten the step by this fraction.
  double least_wire_gain = 0.01;
  bool deeper_warm_ups = true;
  /// Names from draft_schedules().
  std::vector<std::string> schedules = {"1f1b", "zb-h1",  "zb-h2", "interleaved-1f1b",
                                        "zb-v", "v-half", "v-min"};
  /// Several chunks send more messages, and must shorten the step by this fraction.
  double least_chunk_gain = 0.01;

  /// The `schedules` of one chunk; `1f1b` where there is none.
  std::vector<std::string> plain_schedules() const;
};

/// Returns the schedules to try for a graph in place of the usual ones: a loss over a step's
/// samples waits for all forward passes, which is gpipe's order. One that was asked for stays.
std::vector<std::string> schedules_for(const ModelGraph& graph, std::vector<std::string> schedules);

/// A draft and its exact score.
struct ScoredDraft {
  PipelineDraft draft;
  DraftScore score;
};

/// The step's time, and a little of the work of all positions: easing one of several that are the
/// slowest is a step on the way. Memory that lacks counts, too.
double worth(const ScoredDraft& draft);

/// Improves a draft that fits, by the exact clock, until no single move helps or `stop` says so:
/// cuts by one or more layers, a replica from one stage to another or to none, a degree, one
/// stage's recomputation, schedule and warm-ups, ZeRO, a wire's format; shares are balanced after
/// each.
///
/// Returns the fastest draft on the way, scored exactly. The batch stays, and with it the number
/// of micro-batches; the start must fit. `scored` goes up by the drafts scored.
ScoredDraft improve_draft(ScoredDraft start, const StageFiller& filler, const MoveRules& rules,
                          const std::function<bool()>& stop, std::uint64_t& scored);

}  // namespace heteroperf
