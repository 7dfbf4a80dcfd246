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

/// A draft and its exact score.
struct ScoredDraft {
  PipelineDraft draft;
  DraftScore score;
};

/// Improves a draft that fits, by the exact clock, until no single move helps or `stop` says so:
/// cuts by one or more layers, a replica from one stage to another or to none, a degree, one
/// stage's recomputation, schedule and warm-ups, ZeRO, a wire's format; shares are balanced after
/// each.
class DraftMoves {
 public:
  DraftMoves(const StageFiller& filler, const MoveRules& rules) : filler_(filler), rules_(rules) {}

  /// Returns the fastest draft on the way, scored exactly. The batch stays, and with it the number
  /// of micro-batches; the start must fit.
  ScoredDraft improve(ScoredDraft start, const std::function<bool()>& stop);
  /// Drafts scored so far.
  std::uint64_t scored() const { return scored_; }

 private:
  /// A kind of move calls `visit` with every neighbour of the draft; nothing is scored yet.
  using Visit = std::function<void(PipelineDraft&&)>;
  void cuts(const PipelineDraft& draft, const Visit& visit) const;
  void replicas(const PipelineDraft& draft, const Visit& visit) const;
  void idle_devices(const PipelineDraft& draft, const Visit& visit) const;
  void degrees(const PipelineDraft& draft, const Visit& visit) const;
  void recomputation(const PipelineDraft& draft, const Visit& visit) const;
  void schedules(const PipelineDraft& draft, const Visit& visit) const;
  void warm_ups(const PipelineDraft& draft, const Visit& visit) const;
  void shares(const PipelineDraft& draft, const Visit& visit) const;
  void wires(const PipelineDraft& draft, const Visit& visit) const;
  /// Gives these stages new shares after a change; false where their replicas have no room.
  bool rebalance(PipelineDraft& draft, const std::vector<std::size_t>& stages) const;

  const StageFiller& filler_;
  MoveRules rules_;
  std::uint64_t scored_ = 0;
};

}  // namespace heteroperf
