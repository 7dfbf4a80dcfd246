#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "runners/plan/search/draft_moves.hpp"
#include "runners/plan/search/problem/replica_choices.hpp"

namespace heteroperf {

/// Every draft of several chunks of a small problem: numbers of micro-batches and positions, sets
/// of replicas per position, schedules, cuts and recomputation. What a position has to do bounds
/// what is still open.
class ExhaustiveChunks {
 public:
  /// The scorer outlives it. Of `schedules` those of several chunks.
  ExhaustiveChunks(const DraftScorer& scorer, const std::vector<std::string>& schedules,
                   int zero_stage);

  /// Calls `visit` with drafts that fit and are better than all before; `best_s` is the time to
  /// beat. False where `stop` ended it, or after `most_tried` stages.
  bool run(double best_s, const std::function<bool()>& stop,
           const std::function<void(ScoredDraft&&)>& visit);
  std::uint64_t scored() const { return scored_; }

 private:
  static constexpr std::uint64_t most_tried = 4'000'000;
  using Groups = std::vector<ReplicaGroup>;
  void next_position(std::vector<Groups>& positions);
  void cut(const std::vector<Groups>& positions, const DraftSchedule& schedule, int chunks);
  void next_stage(PipelineDraft& draft, std::size_t stage, std::vector<double>& busy);
  void score(const PipelineDraft& draft);

  const DraftScorer& scorer_;
  const PlanningProblem& problem_;
  ReplicaChoices choices_;
  std::vector<DraftSchedule> schedules_;
  int zero_stage_;
  bool attention_ = false;  ///< selective recomputation is something of its own
  std::int64_t samples_ = 1;
  double best_s_ = 0;
  bool stopped_ = false;
  std::uint64_t scored_ = 0, tried_ = 0;
  const std::function<bool()>* stop_ = nullptr;
  const std::function<void(ScoredDraft&&)>* visit_ = nullptr;
};

}  // namespace heteroperf
