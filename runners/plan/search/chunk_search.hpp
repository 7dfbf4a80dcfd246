#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "runners/plan/search/draft_moves.hpp"

namespace heteroperf {

/// Cuts pipelines into several chunks per position where that fills them sooner: few micro-batches
/// per pipeline. Positions keep their devices and shares; cuts are balanced, then moved by local
/// search, with recomputation and ZeRO.
class ChunkSearch {
 public:
  /// The scorer outlives it. Of `schedules` those of several chunks are tried.
  ChunkSearch(const DraftScorer& scorer, const std::vector<std::string>& schedules);

  /// Remembers a draft of one chunk under `1f1b`, by what would be left of its time without the
  /// most of its filling. `score` is its own.
  void offer(const PipelineDraft& draft, const DraftScore& score);
  /// Drafts that fit, the fastest first, of at most `keep` structures that could be faster than
  /// `best_s`.
  std::vector<ScoredDraft> run(double best_s, std::size_t keep, const std::function<bool()>& stop);
  /// Drafts scored so far.
  std::uint64_t scored() const { return scored_; }

 private:
  struct Seed {
    double hope_s = 0;  ///< no cut of it takes less
    PipelineDraft draft;
  };
  std::vector<ScoredDraft> cut_seeds(double best_s, const std::function<bool()>& stop);
  ScoredDraft scored_draft(PipelineDraft&& draft);
  /// Takes the best neighbour of one kind of move after the other until no kind helps.
  ScoredDraft improve(ScoredDraft start, const std::function<bool()>& stop);

  const DraftScorer& scorer_;
  std::vector<DraftSchedule> schedules_;
  std::map<std::string, Seed> seeds_;  ///< by micro-batches and devices
  std::uint64_t scored_ = 0, passes_ = 0;
};

}  // namespace heteroperf
