#pragma once

#include <cstdint>
#include <vector>

#include "runners/plan/search/draft_moves.hpp"

namespace heteroperf {

/// The limits of a search and its freedom.
struct PlanSearchOptions {
  double time_limit_s = 10;  ///< then the best so far is the result
  std::uint64_t seed = 1;    ///< draws the steps that local search is restarted with
  std::size_t keep = 8;      ///< drafts for the exact simulator
  /// Local searches from shaken drafts, after all others.
  int restarts = 8;
  MoveRules moves;
};

/// The result of a search for drafts.
struct SearchOutcome {
  std::vector<ScoredDraft> best;  ///< distinct, the fastest first; all fit
  std::uint64_t candidates = 0;   ///< drafts scored by formula or by the exact clock
  double seconds = 0;
  bool complete = true;     ///< it ended by itself, not by the time limit
  bool exhaustive = false;  ///< no draft with the least warm-ups is faster
};

/// The fastest drafts of a problem. Deterministic where it ends by itself; the order in which pools
/// stand in the problem does not change the time found.
/// Throws UserError as check_problem() does, and where the model fits nowhere: by how much, and
/// what would make it fit.
SearchOutcome search_drafts(const PlanningProblem& problem, const PlanSearchOptions& options);

}  // namespace heteroperf
