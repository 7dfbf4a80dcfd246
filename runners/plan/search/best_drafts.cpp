// The list of the best drafts of a search, and the memory of every draft that was ever on it.
//
// A draft is known by its text, so the same draft found by two phases takes one place. A draft that
// fell off the list is still remembered and does not return; it could not win anyway, since the
// time to beat only falls. Ties are broken by the number of stages and then by the text, so that
// the result does not depend on the order in which drafts were found.
#include "runners/plan/search/best_drafts.hpp"

#include <algorithm>

#include "metrics/base/quantity.hpp"

namespace heteroperf {
namespace {

/// Orders drafts by time; equal ones by the number of stages, then by any fixed order.
bool faster(const ScoredDraft& a, const ScoredDraft& b) {
  if (a.score.step_time_s != b.score.step_time_s) {
    return a.score.step_time_s < b.score.step_time_s;
  }
  if (a.draft.stages.size() != b.draft.stages.size()) {
    return a.draft.stages.size() < b.draft.stages.size();
  }
  return to_text(a.draft) < to_text(b.draft);
}

}  // namespace

double BestDrafts::time_to_beat() const {
  return drafts_.size() < keep_ ? infinite : drafts_.back().score.step_time_s;
}

double BestDrafts::best() const {
  return drafts_.empty() ? infinite : drafts_.front().score.step_time_s;
}

bool BestDrafts::add(ScoredDraft&& draft) {
  if (draft.score.step_time_s >= time_to_beat()) return false;
  if (!seen_.insert(to_text(draft.draft)).second) return false;
  const auto place = std::upper_bound(drafts_.begin(), drafts_.end(), draft, faster);
  drafts_.insert(place, std::move(draft));
  if (drafts_.size() > keep_) drafts_.pop_back();
  return true;
}

}  // namespace heteroperf
