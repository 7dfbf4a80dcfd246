#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runners/plan/plan.hpp"

namespace heteroperf {

/// Replicas of a stage that are alike.
struct ReplicaGroup {
  int pool = 0;    ///< index into PlanningProblem::pools
  int degree = 0;  ///< index of PlanningProblem::degrees
  int replicas = 1;
  std::int64_t samples = 1;  ///< that one replica takes of every micro-batch
  friend auto operator<=>(const ReplicaGroup&, const ReplicaGroup&) = default;
};

/// A stage of a draft: layers [first, end) on some groups of replicas, which split every
/// micro-batch in this order.
struct DraftStage {
  int first = 0, end = 0;
  std::vector<ReplicaGroup> groups = {};
  Recomputation recomputation = Recomputation::none;
  /// `1f1b`: forwards before the first backward; others: micro-batches kept at most, less one.
  int warm_up = 0;
  WireFormat wire = WireFormat::fp32;  ///< to the next stage and back
  std::int64_t samples() const;        ///< in a micro-batch
  int replicas() const;
  friend bool operator==(const DraftStage&, const DraftStage&) = default;
};

/// A candidate of the search: a plan in numbers alone. Stages of one position, of which there are
/// `chunks`, have the same groups.
struct PipelineDraft {
  int micro_batches = 1;
  int zero_stage = 0;
  std::string schedule = "1f1b";
  int chunks = 1;
  std::vector<DraftStage> stages;
  int positions() const { return static_cast<int>(stages.size()) / chunks; }
  PositionId position_of(StageId stage) const;
  friend bool operator==(const PipelineDraft&, const PipelineDraft&) = default;
};

/// By pool, degree, and more samples first; groups that are alike as one, empty ones left out.
std::vector<ReplicaGroup> ordered_groups(std::vector<ReplicaGroup> groups);

/// A schedule of drafts.
struct DraftSchedule {
  const char* name;
  int least_chunks = 1, most_chunks = 1;
};
/// `1f1b`, `zb-h1`, `zb-h2`, and those of several chunks: `interleaved-1f1b`, `zb-v`, `v-half`,
/// `v-min`.
std::span<const DraftSchedule> draft_schedules();
/// The names of schedules of several chunks.
std::vector<DraftSchedule> chunked_schedules(const std::vector<std::string>& names);

/// Gives a draft of one chunk a schedule, `1f1b`, `zb-h1` or `zb-h2`, with that schedule's least
/// warm-ups.
void set_schedule(PipelineDraft& draft, const std::string& schedule);

/// Moves the end of a stage by some layers; false where that leaves it or the next one none.
bool move_cut(PipelineDraft& draft, std::size_t stage, int by);

/// A short text that is equal for equal drafts alone.
std::string to_text(const PipelineDraft& draft);

}  // namespace heteroperf
