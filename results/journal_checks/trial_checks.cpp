// A search's trials: the two lines of each against one another, their quality against the
// evaluations, and what the master counted against what it handed out.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>

#include "metrics/quantity.hpp"
#include "results/journal_checks/checked_journal.hpp"

namespace heteroperf {
namespace {

std::string identity_text(const TrialEvent& trial) {
  return fmt::format("parent {}, group {}, morph '{}', graph {}, {}, from {} ns",
                     trial.parent ? std::to_string(*trial.parent) : "none", trial.group,
                     trial.morph, trial.graph_hash, trial.hyper_parameters.text, trial.t_start_ns);
}

std::string found_text(double quality, double loss) {
  return fmt::format("quality {}, loss {}", quality, loss);
}

std::string found_text(const TrialEvent& trial) {
  if (!trial.quality) return trial.loss ? fmt::format("loss {}", *trial.loss) : "no quality";
  return found_text(*trial.quality, trial.loss.value_or(std::nan("")));
}

/// Which rungs a trial in this state has reached.
bool fits_rung(const TrialEvent& trial, std::uint64_t rungs) {
  switch (trial.state) {
    case TrialStatus::running:
      return trial.rung == 0 && trial.steps == 0 && trial.ops == Ops() && !trial.t_end_ns;
    case TrialStatus::completed:
      return trial.rung == rungs;
    case TrialStatus::stopped:
      return trial.rung >= 1 && trial.rung < rungs;
    case TrialStatus::diverged:
    case TrialStatus::failed:
    case TrialStatus::truncated:
      return trial.rung < rungs;
  }
  return false;
}

}  // namespace

void check_trial_lines(const CheckedJournal& run, LineCheck& check) {
  if (!run.outline.asked) return;
  std::map<std::uint64_t, const TrialEvent*> started;
  std::map<std::uint64_t, bool> ended;
  for_lines<TrialEvent>(run.journal, [&](std::size_t line, const TrialEvent& trial) {
    const auto [known, is_new] = started.try_emplace(trial.id, &trial);
    const bool starts = trial.state == TrialStatus::running;
    check.hold(
        line, run.is_search() && starts == is_new && !ended[trial.id],
        [&] { return fmt::format("a line that starts or ends trial {}", trial.id); },
        [&] { return fmt::format("it is {} here", to_string(trial.state)); });
    check.equal(line, "trial of", identity_text(*known->second), identity_text(trial));
    check.hold(
        line, fits_rung(trial, run.outline.asked->rungs),
        [&] { return fmt::format("a rung of {} that fits its state", run.outline.asked->rungs); },
        [&] { return fmt::format("{} at rung {}", to_string(trial.state), trial.rung); });
    check.hold(
        line, trial.t_start_ns <= trial.t_end_ns.value_or(trial.t_start_ns),
        [] { return std::string("an end after its start"); },
        [&] { return fmt::format("{} ns", *trial.t_end_ns); });
    ended[trial.id] = !starts;
  });
}

/// A trial's quality is what its last evaluation found. A segment that ended without one found
/// nothing: 0 and NaN.
void check_trial_quality(const CheckedJournal& run, LineCheck& check) {
  std::map<std::uint64_t, const EvalEvent*> last;
  for (std::size_t i = 0; i < run.journal.lines.size(); ++i) {
    const Event& event = run.journal.lines[i].event;
    const auto* eval = std::get_if<EvalEvent>(&event);
    if (eval != nullptr && eval->trial) last[*eval->trial] = eval;
    const auto* trial = std::get_if<TrialEvent>(&event);
    if (trial == nullptr) continue;
    const auto found = last.find(trial->id);
    const std::string said = found_text(*trial);
    const std::string nothing = found_text(0, std::nan(""));
    if (trial->rung == 0) {
      check.equal(i + 1, "it found", std::string("no quality"), said);
    } else if (said != nothing || found == last.end()) {
      check.equal(
          i + 1, "it found",
          found == last.end() ? nothing : found_text(found->second->accuracy, found->second->loss),
          said);
    }
  }
}

void check_search_line(const CheckedJournal& run, LineCheck& check) {
  std::uint64_t handed_out = 0;
  for (std::size_t i = 0; i < run.journal.lines.size(); ++i) {
    const JournalLine& line = run.journal.lines[i];
    const auto* trial = std::get_if<TrialEvent>(&line.event);
    if (trial != nullptr && trial->state == TrialStatus::running) ++handed_out;
    const auto* search = std::get_if<SearchEvent>(&line.event);
    if (search == nullptr || !run.scale) continue;
    check.equal(i + 1, "proposals", handed_out, search->proposals);
    const auto groups = static_cast<std::uint64_t>(std::max(0, run.scale->groups));
    const double open_s = static_cast<double>(line.t_ns - run.journal.lines.front().t_ns) *
                          nanosecond * static_cast<double>(groups);
    // Every trial was asked for, and every group was told in the end that there is none for it.
    const bool fits = search->groups_lost <= groups && search->answers >= handed_out &&
                      search->proposal_p50_s >= 0 &&
                      search->proposal_p50_s <= search->proposal_p99_s && search->idle_s >= 0 &&
                      search->idle_s <= open_s;
    check.hold(
        i + 1, fits,
        [&] {
          return fmt::format("at most {} groups lost, {} answers or more, waits of {} s in all",
                             groups, handed_out, open_s);
        },
        [&] {
          return fmt::format("{}, {}, proposals of {} and {} s, {} s", search->groups_lost,
                             search->answers, search->proposal_p50_s, search->proposal_p99_s,
                             search->idle_s);
        });
  }
}

}  // namespace heteroperf
