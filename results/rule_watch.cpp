#include "results/rule_watch.hpp"

#include <algorithm>

namespace heteroperf {
namespace {

constexpr std::size_t most_kept = 4096;  // of what is no step

bool is_judged(const Event& event) {
  return std::holds_alternative<StepEvent>(event) || std::holds_alternative<ObservedEvent>(event) ||
         std::holds_alternative<ChecksumEvent>(event) ||
         std::holds_alternative<HostLoadEvent>(event) ||
         std::holds_alternative<GpuSlowdownEvent>(event);
}

}  // namespace

void RuleWatch::see(std::int64_t t_ns, const Event& event) {
  if (!is_judged(event)) return;
  const std::lock_guard lock(mutex_);
  recent_.lines.push_back({t_ns, event});
}

std::vector<Reason> RuleWatch::judge() {
  const std::lock_guard lock(mutex_);
  std::vector<Reason> news;
  for (Reason& reason : judge_at(Moment::steps, recent_, RunSummary{}).reasons) {
    if (told_.insert(reason.rule).second) news.push_back(std::move(reason));
  }
  forget_old_lines();
  return news;
}

/// All but the last step of every group and the newest of the others.
void RuleWatch::forget_old_lines() {
  std::vector<JournalLine> kept;
  std::set<std::int32_t> groups;
  std::size_t others = 0;
  for (auto line = recent_.lines.rbegin(); line != recent_.lines.rend(); ++line) {
    const auto* step = std::get_if<StepEvent>(&line->event);
    const bool keep = step != nullptr ? groups.insert(step->group).second : others++ < most_kept;
    if (keep) kept.push_back(std::move(*line));
  }
  std::reverse(kept.begin(), kept.end());
  recent_.lines = std::move(kept);
}

}  // namespace heteroperf
