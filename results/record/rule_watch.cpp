// Judges a run while it goes on, so that a user hears at once of a rule that it has broken and need
// not wait for its record. Only rules that single lines and their neighbours can break are asked,
// and only few lines are kept: the last step of each group, to which the next is compared, and the
// newest lines of other kinds. Each rule is told once. Load on hosts during the set-up is told
// apart: lines of it are forgotten with the first step, since a record judges hosts from there on.
#include "results/record/rule_watch.hpp"

#include <algorithm>

namespace heteroperf {
namespace {

constexpr const char* host_load_parameter = "host_load";  // named by rules that hosts break
constexpr std::size_t most_kept = 4096;                   // lines that are no steps

template <class... Kinds>
bool is_any_of(const Event& event) {
  return (std::holds_alternative<Kinds>(event) || ...);
}

bool tells_of_hosts(const Event& event) {
  return is_any_of<HostLoadEvent, GpuSlowdownEvent>(event);
}

/// Returns true for the kinds of lines that rules of Moment::steps look at.
bool is_judged(const Event& event) {
  return is_any_of<StepEvent, ObservedEvent, ChecksumEvent>(event) || tells_of_hosts(event);
}

}  // namespace

/// Called for every line that is written, under the journal's lock, so it does little.
void RuleWatch::see(std::int64_t t_ns, const Event& event) {
  if (!is_judged(event)) return;
  const std::lock_guard lock(mutex_);
  if (!has_step_ && std::holds_alternative<StepEvent>(event)) forget_setup();
  recent_.lines.push_back({t_ns, event});
}

/// Host lines until the first step tell of the set-up, not of the steps.
void RuleWatch::forget_setup() {
  has_step_ = true;
  std::erase_if(recent_.lines, [](const JournalLine& line) { return tells_of_hosts(line.event); });
}

std::vector<RuleNews> RuleWatch::judge() {
  const std::lock_guard lock(mutex_);
  std::vector<RuleNews> news;
  for (Reason& reason : judge_at(Moment::steps, recent_, RunSummary{}).reasons) {
    const bool of_setup = !has_step_ && reason.parameter == host_load_parameter;
    std::set<std::string>& told = of_setup ? told_of_setup_ : told_;
    if (told.insert(reason.rule).second) news.push_back({std::move(reason), of_setup});
  }
  forget_old_lines();
  return news;
}

/// Keeps the last step of every group and the newest of the other lines, in their order.
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
