#pragma once

#include <cstdint>
#include <functional>

#include "runners/plan/search/draft_moves.hpp"
#include "runners/plan/search/problem/replica_choices.hpp"

namespace heteroperf {

/// Branch and bound over every draft of a small problem: all numbers of micro-batches, cuts, sets
/// of replicas per stage with equal or unlike sizes, degrees, idle devices and recomputation, with
/// the least warm-ups. From the last stage to the first: a stage's work and the way to it bound
/// what is still open.
class ExhaustiveSearch {
 public:
  ExhaustiveSearch(const DraftScorer& scorer, int zero_stage);

  /// An upper estimate of the drafts there are; infinite for more than a double holds.
  double drafts() const;
  /// Calls `visit` with drafts that fit and are better than all before; `best_s` is the time to
  /// beat. False where `stop` ended it.
  bool run(double best_s, const std::function<bool()>& stop,
           const std::function<void(ScoredDraft&&)>& visit);
  std::uint64_t scored() const { return scored_; }

 private:
  void stages_before(int end);
  void add_stage(const DraftStage& stage);
  bool hopeless(const DraftStage& stage, const ClockStage& clock) const;

  const DraftScorer& scorer_;
  const PlanningProblem& problem_;
  ReplicaChoices choices_;
  std::vector<double> way_;  ///< [layer]: least time of all layers before it
  PipelineDraft draft_;      ///< stages from the last to the first
  int zero_stage_;
  bool attention_ = false;  ///< selective recomputation is something of its own
  std::int64_t samples_ = 1;
  double best_s_ = 0;
  bool stopped_ = false;
  std::uint64_t scored_ = 0;
  const std::function<bool()>* stop_ = nullptr;
  const std::function<void(ScoredDraft&&)>* visit_ = nullptr;
};

}  // namespace heteroperf
