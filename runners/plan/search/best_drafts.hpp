#pragma once

#include <set>
#include <string>
#include <vector>

#include "runners/plan/search/draft_moves.hpp"

namespace heteroperf {

/// The fastest distinct drafts so far.
class BestDrafts {
 public:
  explicit BestDrafts(std::size_t keep) : keep_(keep) {}

  /// Infinite while fewer than `keep` are known.
  /// The step time in seconds of the last one kept: a draft that is not faster is of no use.
  double time_to_beat() const;
  double best() const;  ///< infinite while none is known
  /// False where it is known, or no faster than all of those kept.
  bool add(ScoredDraft&& draft);
  /// The fastest first; of equal times the fewest stages.
  const std::vector<ScoredDraft>& drafts() const { return drafts_; }

 private:
  std::size_t keep_;
  std::vector<ScoredDraft> drafts_;
  std::set<std::string> seen_;
};

}  // namespace heteroperf
