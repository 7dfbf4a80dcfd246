// The phases of a run, and of each group of a search, follow one another as the program enters
// them, and what belongs to a phase stands in it. From them follows which steps count.
//
//   a fixed model       setup, warmup, measure, finish, evaluate
//   a search            setup, evaluate (of the best trial), and of each group
//                       warmup, measure, finish
//
// A run ends in any of them. One that is interrupted in its warm-up goes from there to `finish`, as
// does a group whose steps are at an end. Programs before ruleset 1.8 do not all write `finish`:
// their searches end with `measure`, and their fixed models are evaluated after it.
#include <fmt/format.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "metrics/rate.hpp"
#include "results/journal_checks/checked_journal.hpp"

namespace heteroperf {
namespace {

/// The group that enters a phase; nothing: the whole run.
using PhaseKey = std::optional<std::int32_t>;

/// Progress says how far the run, or one of its groups, has come at some line.
struct Progress {
  std::optional<Phase> phase;
  bool measured = false;
  std::uint64_t steps = 0;

  bool trains() const { return phase == Phase::warmup || phase == Phase::measure; }
};

/// Names the run or the group in a message.
std::string key_text(const PhaseKey& group) {
  return group ? fmt::format("group {}", *group) : "the run";
}

std::string phase_text(const std::optional<Phase>& phase) {
  return phase ? std::string(to_string(*phase)) : "the begin";
}

/// The steps of warm-up. Each group of a search warms up by itself for as many as were asked for. A
/// fixed model that trains to a given step does so for half of its steps at most.
std::uint64_t warmup_asked(const CheckedJournal& run) {
  const AskedRun& asked = *run.outline.asked;
  if (run.is_search()) return asked.warmup_steps;
  return warmup_steps_of_run(asked.warmup_steps, asked.steps, run.first_step());
}

/// A group may finish from its warm-up, where the search ends before the group measures.
bool follows_in_group(const Progress& before, Phase next) {
  return (next == Phase::warmup && !before.phase) ||
         (next == Phase::measure && before.phase == Phase::warmup) ||
         (next == Phase::finish && before.trains());
}

/// The search as a whole only has its set-up and the evaluation of its best trial; everything
/// between is its groups'.
bool follows_in_search(const Progress& before, Phase next) {
  return next == Phase::setup ? !before.phase
                              : next == Phase::evaluate && before.phase == Phase::setup;
}

/// `closed`: the first rank has said what its training came to, as it does after `finish`.
bool follows_in_training(const Progress& before, Phase next, bool closed) {
  return (next == Phase::setup && !before.phase) ||
         (next == Phase::warmup && before.phase == Phase::setup) ||
         (next == Phase::measure && before.phase == Phase::warmup) ||
         (next == Phase::finish && before.trains() && !closed) ||
         (next == Phase::evaluate && before.measured &&
          (before.phase == Phase::finish || (before.phase == Phase::measure && closed)));
}

/// Takes the lines of a journal in their order and keeps the progress that they lead to. Only
/// phases, steps, final evaluations and the first rank's checksum matter.
class PhaseOrder {
 public:
  PhaseOrder(const CheckedJournal& run, LineCheck& check)
      : run_(run), check_(check), warmup_(warmup_asked(run)) {}

  /// The measured phase begins after exactly as many steps of warm-up as were asked for: one step
  /// more or less would move the window in which the throughput is measured.
  void operator()(const PhaseEvent& event) {
    Progress& progress = progress_[event.group];
    check_.hold(follows(event, progress), "the phase of {} after {}", "{2}", key_text(event.group),
                phase_text(progress.phase), std::string(to_string(event.phase)));
    if (event.phase == Phase::measure) {
      check_.equal("steps of warm-up", warmup_, progress.steps);
      progress.measured = true;
    }
    progress.phase = event.phase;
  }
  /// A step stands in a phase that trains. Before the measured phase there are no more steps than
  /// those of the warm-up.
  void operator()(const StepEvent& step) {
    const PhaseKey key = run_.is_search() ? PhaseKey(step.group) : std::nullopt;
    Progress& progress = progress_[key];
    ++progress.steps;
    const bool fits = progress.trains() && (progress.measured || progress.steps <= warmup_);
    if (fits) return check_.pass();
    check_.hold(false, "no step {} of {} in {}", "one", progress.steps, key_text(key),
                phase_text(progress.phase));
  }
  /// A fixed model is evaluated in the end, trials all the time and the best one in the end.
  void operator()(const EvalEvent& eval) {
    if (run_.is_search() && !eval.is_final.value_or(false)) return;
    const std::optional<Phase>& phase = progress_[std::nullopt].phase;
    check_.hold(phase == Phase::evaluate, "no final evaluation in {}", "one", phase_text(phase));
  }
  /// The first rank writes its checksum when its training has ended.
  void operator()(const ChecksumEvent& event) {
    closed_ = closed_ || (event.rank == 0 && !event.trial);
  }

 private:
  /// A phase line names a group in a search only, and there just for the phases of its groups.
  bool follows(const PhaseEvent& event, const Progress& before) const {
    if (!run_.is_search()) {
      return !event.group && follows_in_training(before, event.phase, closed_);
    }
    return event.group ? is_group(run_, *event.group) && follows_in_group(before, event.phase)
                       : follows_in_search(before, event.phase);
  }

  const CheckedJournal& run_;
  LineCheck& check_;
  std::uint64_t warmup_;
  std::map<PhaseKey, Progress> progress_;
  bool closed_ = false;
};

}  // namespace

void check_phases(const CheckedJournal& run, LineCheck& check) {
  if (!run.outline.asked) return;
  PhaseOrder order(run, check);
  check.each(run.journal, order);
}

}  // namespace heteroperf
