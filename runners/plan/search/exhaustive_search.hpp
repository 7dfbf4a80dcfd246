#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "runners/plan/search/draft_moves.hpp"

namespace heteroperf {

/// The question to a search of every draft of a small problem, and how many it has scored.
struct ExhaustiveTask {
  const DraftScorer& scorer;
  int zero_stage = 0;
  double best_s = 0;  ///< the time to beat
  std::function<bool()> stop;
  std::function<void(ScoredDraft&&)> visit;  ///< drafts that fit and are better than all before
  std::uint64_t scored = 0;
};

/// Branch and bound over every draft of one chunk: all numbers of micro-batches, cuts, sets of
/// replicas per stage with equal or unlike sizes, degrees, idle devices and recomputation, with the
/// least warm-ups. False where `stop` ended it.
bool search_every_draft(ExhaustiveTask& task);
/// The same of several chunks, under those of `schedules`: numbers of micro-batches and positions,
/// sets of replicas per position, cuts and recomputation. It also ends after `most_tried` stages.
bool search_every_chunked_draft(ExhaustiveTask& task, const std::vector<std::string>& schedules);
/// An upper estimate of the drafts of one chunk; infinite for more than a double holds.
double exhaustive_drafts(const PlanningProblem& problem);

}  // namespace heteroperf
