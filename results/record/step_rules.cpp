// The rules that look at single steps: clocks that go back or leap, steps that overlap, are missing
// or stand twice, losses that are not finite, and windows with too few steps. Steps of one
// training, a fixed model's or a trial's, are numbered one after another, and steps of one group of
// ranks follow each other in time. A loss may be NaN only where the search itself says that the
// trial diverged.
#include "results/record/line_rules.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "metrics/base/quantity.hpp"

namespace heteroperf {
namespace {

constexpr std::uint64_t fewest_steps = 20;
constexpr double longest_pause_s = 10;
constexpr double longest_pause_medians = 20;

using TrainingKey = std::tuple<std::int32_t, std::optional<std::uint64_t>>;

/// A run of one model counts on from the checkpoint that it goes on from.
std::uint64_t first_step_of(const Journal& journal, const StepEvent& step) {
  if (step.trial) return step.n;
  const auto* start = journal.first<StartEvent>();
  return start == nullptr ? 0 : start->parent_step.value_or(0);
}

/// Returns the trials whose outcome is that they diverged.
std::set<std::uint64_t> diverged_trials(const Journal& journal) {
  std::set<std::uint64_t> trials;
  for (const TrialEvent* trial : journal.all<TrialEvent>()) {
    if (trial->state == TrialStatus::diverged) trials.insert(trial->id);
    if (trial->state == TrialStatus::completed) trials.erase(trial->id);
  }
  return trials;
}

}  // namespace

std::string training_name(std::int32_t group, std::optional<std::uint64_t> trial) {
  return trial ? fmt::format("group {} trial {}", group, *trial) : fmt::format("group {}", group);
}

/// Times of lines never decrease, since all are of rank 0's clock; steps of different groups may
/// overlap.
Verdict clock_backwards(const Journal& journal, const RunSummary&) {
  std::map<std::int32_t, std::int64_t> group_end;
  for (std::size_t i = 0; i < journal.lines.size(); ++i) {
    const JournalLine& line = journal.lines[i];
    if (i > 0 && line.t_ns < journal.lines[i - 1].t_ns) {
      return Finding{"times that never decrease",
                     fmt::format("line {} is {} ns before the last", i + 1,
                                 journal.lines[i - 1].t_ns - line.t_ns)};
    }
    const auto* step = std::get_if<StepEvent>(&line.event);
    if (step == nullptr) continue;
    const auto last = group_end.try_emplace(step->group, step->t_start_ns).first;
    if (step->t_end_ns <= step->t_start_ns || step->t_start_ns < last->second) {
      return Finding{"steps of a group one after another",
                     fmt::format("line {}: step {} from {} to {} ns, the one before ended at {} ns",
                                 i + 1, step->n, step->t_start_ns, step->t_end_ns, last->second)};
    }
    last->second = step->t_end_ns;
  }
  return {};
}

/// A monotonic clock cannot go back but can leap, and a machine can be stopped: either shows as one
/// step far beyond all others.
Verdict clock_jump(const Journal& journal, const RunSummary& summary) {
  if (!summary.step_time || !summary.window) return {};
  const double longest_s =
      std::max(longest_pause_s, longest_pause_medians * summary.step_time->median_s);
  for (const StepEvent* step : journal.all<StepEvent>()) {
    if (!summary.window->contains(step->t_end_ns)) continue;
    const double seconds = seconds_of(step->t_end_ns - step->t_start_ns);
    if (seconds <= longest_s) continue;
    return Finding{
        fmt::format("no step beyond {:.6g} s ({:.0f} medians)", longest_s, longest_pause_medians),
        fmt::format("{:.6g} s in {}", seconds, training_name(step->group, step->trial))};
  }
  return {};
}

/// A missing step would take its operations out of the window and its time with it.
Verdict step_order(const Journal& journal, const RunSummary&) {
  std::map<TrainingKey, std::uint64_t> next;
  for (const StepEvent* step : journal.all<StepEvent>()) {
    // A trial may move to another group with a later rung.
    const TrainingKey key{step->trial ? 0 : step->group, step->trial};
    const auto entry = next.try_emplace(key, first_step_of(journal, *step)).first;
    if (step->n != entry->second || step->samples == 0) {
      return Finding{fmt::format("{} goes on with step {} and samples",
                                 training_name(step->group, step->trial), entry->second),
                     fmt::format("step {} with {} samples", step->n, step->samples)};
    }
    ++entry->second;
  }
  return {};
}

Verdict non_finite_loss(const Journal& journal, const RunSummary&) {
  const std::set<std::uint64_t> outcomes = diverged_trials(journal);
  for (const JournalLine& line : journal.lines) {
    const auto judge_loss = [&](const auto& event, const char* what) -> Verdict {
      if (std::isfinite(event.loss) || (event.trial && outcomes.contains(*event.trial))) return {};
      return Finding{"a finite loss", fmt::format("{} in {} of {}", event.loss, what,
                                                  training_name(event.group, event.trial))};
    };
    if (const auto* step = std::get_if<StepEvent>(&line.event)) {
      if (Verdict broken = judge_loss(*step, "a step")) return broken;
    } else if (const auto* eval = std::get_if<EvalEvent>(&line.event)) {
      if (Verdict broken = judge_loss(*eval, "an evaluation")) return broken;
    }
  }
  return {};
}

Verdict no_steps(const Journal&, const RunSummary& summary) {
  if (summary.steps >= 1) return {};
  return Finding{"at least 1 step after the warm-up",
                 fmt::format("{} ({} steps of warm-up)", summary.steps, summary.warmup_steps)};
}

/// A run without any step breaks the stricter rule only.
Verdict few_steps(const Journal&, const RunSummary& summary) {
  if (summary.steps >= fewest_steps || summary.steps == 0) return {};
  return Finding{fmt::format("at least {} steps after the warm-up", fewest_steps),
                 std::to_string(summary.steps)};
}

}  // namespace heteroperf
