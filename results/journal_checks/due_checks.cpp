// What a run that calls itself complete must have said. A line that tells of a fault may not be
// taken out of a journal: every rank observes a step, times its steps, tells what its memory
// peaked at and which parameters it ended with, and the run ends with an evaluation.
//
// A host's load and a GPU's slowdown are told where the kernel and the driver tell them, so none
// of these lines is due.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "results/journal_checks/checked_journal.hpp"

namespace heteroperf {
namespace {

/// Who speaks: a rank, and in a search of which trial.
using Speaker = std::pair<std::int32_t, std::optional<std::uint64_t>>;
using Speakers = std::set<Speaker>;

std::string speaker_text(const Speaker& speaker) {
  const auto& [rank, trial] = speaker;
  return trial ? fmt::format("rank {} on trial {}", rank, *trial) : fmt::format("rank {}", rank);
}

template <class E>
Speakers speakers(const Journal& journal) {
  Speakers said;
  for_lines<E>(journal, [&](std::size_t, const E& event) {
    if constexpr (requires { event.trial; }) {
      said.emplace(event.rank, event.trial);
    } else {
      said.emplace(event.rank, std::nullopt);
    }
  });
  return said;
}

Speakers every_rank(const CheckedJournal& run) {
  Speakers all;
  for (const auto& group : run.outline.plan->groups) {
    for (const std::int32_t rank : group) all.emplace(rank, std::nullopt);
  }
  return all;
}

/// The ranks that trained each trial: all of them, and without those trials that ended by an
/// error, after which a rank may have no model any more.
struct TrialRanks {
  Speakers all, whole;
};

TrialRanks ranks_of_trials(const CheckedJournal& run) {
  std::map<std::uint64_t, TrialStatus> ends;
  for_lines<TrialEvent>(
      run.journal, [&](std::size_t, const TrialEvent& trial) { ends[trial.id] = trial.state; });
  TrialRanks ranks;
  std::set<std::uint64_t> seen;
  const auto& groups = run.outline.plan->groups;
  for_lines<StepEvent>(run.journal, [&](std::size_t, const StepEvent& step) {
    const auto group = static_cast<std::size_t>(step.group);
    if (!step.trial || group >= groups.size() || !seen.insert(*step.trial).second) return;
    const auto end = ends.find(*step.trial);
    for (const std::int32_t rank : groups[group]) {
      ranks.all.emplace(rank, step.trial);
      if (end != ends.end() && end->second != TrialStatus::failed) {
        ranks.whole.emplace(rank, step.trial);
      }
    }
  });
  return ranks;
}

/// Holds the lines that are due at the end of a complete run, whose last line it names.
class DueLines {
 public:
  DueLines(const CheckedJournal& run, LineCheck& check)
      : run_(run), check_(check), end_(run.journal.lines.size()) {}

  template <class E>
  void of(const Speakers& due) {
    const Speakers said = speakers<E>(run_.journal);
    const auto missing = std::find_if(
        due.begin(), due.end(), [&](const Speaker& speaker) { return !said.contains(speaker); });
    check_.hold(
        end_, missing == due.end(),
        [&] {
          return fmt::format("a {} line of {} before it", kind_name(E{}), speaker_text(*missing));
        },
        [] { return std::string("none"); });
  }
  void once(bool said, const char* what) {
    check_.hold(
        end_, said, [&] { return fmt::format("{} before it", what); },
        [] { return std::string("none"); });
  }

 private:
  const CheckedJournal& run_;
  LineCheck& check_;
  std::size_t end_;
};

bool has_measured_step(const Journal& journal) {
  bool measuring = false;
  for (const JournalLine& line : journal.lines) {
    const auto* phase = std::get_if<PhaseEvent>(&line.event);
    if (phase != nullptr && phase->phase == Phase::measure) measuring = true;
    if (measuring && std::holds_alternative<StepEvent>(line.event)) return true;
  }
  return false;
}

void hold_training(const CheckedJournal& run, DueLines& due) {
  const Speakers all = every_rank(run);
  due.of<RankPlanEvent>(all);
  due.of<ChecksumEvent>(all);
  if (run.first<StepEvent>()) due.of<ObservedEvent>(all);
  if (!has_measured_step(run.journal)) return;
  due.of<RankTimeEvent>(all);
  due.of<RankStepsEvent>(all);
}

void hold_search(const CheckedJournal& run, DueLines& due) {
  const TrialRanks ranks = ranks_of_trials(run);
  due.of<ObservedEvent>(ranks.all);
  due.of<ChecksumEvent>(ranks.whole);
  due.once(run.journal.first<SearchEvent>() != nullptr, "a search line");
}

}  // namespace

void check_due_lines(const CheckedJournal& run, LineCheck& check) {
  if (!run.is_complete() || !run.outline.plan) return;
  DueLines due(run, check);
  due.of<MemoryEvent>(every_rank(run));
  due.once(run.journal.first<OverheadEvent>() != nullptr, "an overhead line");
  if (run.is_search()) {
    hold_search(run, due);
  } else {
    hold_training(run, due);
    due.once(run.is_lockstep() || run.journal.first<EvalEvent>() != nullptr, "an evaluation");
  }
}

}  // namespace heteroperf
