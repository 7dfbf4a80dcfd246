// These checks hold the trials of a search. A *trial* is one model that the search trains; a
// *morph* is the change that made its graph from its parent's. A trial trains in *segments*, and
// each segment that it comes through lifts it by one *rung*; bad trials are stopped at a rung. A
// trial has a line that starts it and a line that ends it, which must agree in all that a trial
// cannot change. Its quality is what its last evaluation found, the search evaluates its best trial
// in the end, and the master's counts fit the trials that it handed out.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "metrics/base/quantity.hpp"
#include "metrics/score.hpp"
#include "results/journal_checks/checked_journal.hpp"

namespace heteroperf {
namespace {

/// All that a trial is from its start on, so that its two lines can be compared at once.
std::string identity_text(const TrialEvent& trial) {
  return fmt::format("parent {}, group {}, morph '{}', graph {}, {}, from {} ns",
                     trial.parent ? std::to_string(*trial.parent) : "none", trial.group,
                     trial.morph, trial.graph_hash, trial.hyper_parameters.text, trial.t_start_ns);
}

/// NaN is written as text, so that equal results compare equal even where they are NaN.
std::string found_text(double quality, double loss) {
  return fmt::format("quality {}, loss {}", quality, loss);
}

std::string found_text(const TrialEvent& trial) {
  if (!trial.quality) return trial.loss ? fmt::format("loss {}", *trial.loss) : "no quality";
  return found_text(*trial.quality, trial.loss.value_or(std::nan("")));
}

/// True where a trial in this state can be at its rung: it starts at 0, a completed one is at the
/// last, and one that was stopped has come through a segment at least.
bool fits_rung(const TrialEvent& trial, std::uint64_t rungs) {
  if (trial.state == TrialStatus::running) {
    return trial.rung == 0 && trial.steps == 0 && trial.ops == Ops() && !trial.t_end_ns;
  }
  if (trial.state == TrialStatus::completed) return trial.rung == rungs;
  return trial.rung < rungs && (trial.rung >= 1 || trial.state != TrialStatus::stopped);
}

/// The trial that a search evaluates in the end: as good as any where its last segment ended with
/// an evaluation. Of equal ones it is the lowest group's first.
class BestTrial {
 public:
  void operator()(const StepEvent& step) {
    if (!step.trial) return;
    Score& score = scores_[*step.trial];
    ++score.steps;
    score.usable = false;
  }
  void operator()(const EvalEvent& eval) {
    if (!eval.trial || eval.is_final.value_or(false)) return;
    Score& score = scores_[*eval.trial];
    score = {std::isfinite(eval.accuracy), score.steps, eval.accuracy, eval.loss};
  }
  void operator()(const TrialEvent& trial) {
    if (trial.state == TrialStatus::running || trial.state == TrialStatus::failed ||
        trial.state == TrialStatus::diverged) {
      return;
    }
    const Score& score = scores_[trial.id];
    const bool equal = !better(score, best_) && !better(best_, score);
    if (!better(score, best_) && !(equal && id_ && trial.group < group_)) return;
    best_ = score;
    id_ = trial.id;
    group_ = trial.group;
  }

  /// Nothing where none can be used.
  const std::optional<std::uint64_t>& id() const { return id_; }

 private:
  std::map<std::uint64_t, Score> scores_;
  Score best_;
  std::optional<std::uint64_t> id_;
  std::int32_t group_ = 0;
};

/// Names a trial in a message.
std::string id_text(const std::optional<std::uint64_t>& id) {
  return id ? fmt::format("{}", *id) : "none";
}

/// Searches of programs that do not write `finish` end without a final evaluation.
bool ends_with_evaluation(const CheckedJournal& run) {
  const auto* phase = run.journal.last<PhaseEvent>();
  return run.is_complete() && phase != nullptr && phase->phase >= Phase::evaluate;
}

}  // namespace

/// A trial starts once and ends once at most. Its hyper-parameters lie within the search's space,
/// its parent is an earlier trial, its graph takes the samples that the first trial's takes, and a
/// reason stands only where a trial was cut short.
void check_trial_lines(const CheckedJournal& run, LineCheck& check) {
  if (!run.outline.asked) return;
  std::map<std::uint64_t, const TrialEvent*> started;
  std::map<std::uint64_t, bool> ended;
  const SearchSpace space = search_space_around(run.outline.asked->micro_batch);
  const ModelGraph* first = run.any_model();
  check.each(run.journal, [&](const TrialEvent& trial) {
    const auto [known, is_new] = started.try_emplace(trial.id, &trial);
    const bool starts = trial.state == TrialStatus::running;
    check.hold(run.is_search() && starts == is_new && !ended[trial.id],
               "a line that starts or ends trial {}", "it is {1} here", trial.id,
               to_string(trial.state));
    check.equal("trial of", identity_text(*known->second), identity_text(trial));
    check.equal("outside of the search:", "", outside_space(trial.hyper_parameters, space));
    const ModelGraph* graph = starts ? run.graphs.find(trial.graph_hash) : nullptr;
    check.hold(graph == nullptr || first == nullptr || sample_of(*graph) == sample_of(*first),
               "a model for the samples of the first trial", "one for others");
    check.hold(!trial.parent || (started.contains(*trial.parent) && *trial.parent != trial.id),
               "a parent that started before it", "trial {}", trial.parent.value_or(0));
    check.hold(fits_rung(trial, run.outline.asked->rungs), "a rung of {} that fits its state",
               "{1} at rung {2}", run.outline.asked->rungs, to_string(trial.state), trial.rung);
    check.hold(trial.t_start_ns <= trial.t_end_ns.value_or(trial.t_start_ns),
               "an end after its start", "{} ns", trial.t_end_ns.value_or(0));
    const bool goes_on = starts || trial.state == TrialStatus::completed;
    check.hold(!goes_on || trial.reason.empty(), "no reason to be {}", "{1}",
               to_string(trial.state), trial.reason);
    ended[trial.id] = !starts;
  });
}

/// A trial's quality is what its last evaluation found. A segment that ended without one found
/// nothing: 0 and NaN.
void check_trial_quality(const CheckedJournal& run, LineCheck& check) {
  std::map<std::uint64_t, const EvalEvent*> last;
  const auto note = [&](const EvalEvent& eval) {
    if (eval.trial) last[*eval.trial] = &eval;
  };
  check.each(run.journal, note, [&](const TrialEvent& trial) {
    const auto entry = last.find(trial.id);
    const std::string said = found_text(trial);
    const std::string nothing = found_text(0, std::nan(""));
    if (trial.rung == 0) {
      check.equal("it found", "no quality", said);
    } else if (said != nothing || entry == last.end()) {
      check.equal(
          "it found",
          entry == last.end() ? nothing : found_text(entry->second->accuracy, entry->second->loss),
          said);
    }
  });
}

/// The final evaluation of a search is of its best trial.
void check_best_trial(const CheckedJournal& run, LineCheck& check) {
  if (!run.is_search()) return;
  BestTrial best;
  bool judged = false;
  check.each(run.journal, best, [&](const EvalEvent& eval) {
    if (!eval.is_final.value_or(false)) return;
    judged = true;
    check.equal("best trial", id_text(best.id()), id_text(eval.trial));
  });
  if (!ends_with_evaluation(run)) return;
  check.equal("final evaluation", best.id().has_value(), judged);
}

/// The master's line tells what it did. Each trial is one proposal, and one answer at least; the
/// groups cannot have waited longer than the run took, all of them together.
void check_search_line(const CheckedJournal& run, LineCheck& check) {
  std::uint64_t handed_out = 0;
  const auto count = [&](const TrialEvent& trial) {
    if (trial.state == TrialStatus::running) ++handed_out;
  };
  check.each(run.journal, count, [&](const SearchEvent& search) {
    if (!run.scale) return;
    check.equal("proposals", handed_out, search.proposals);
    const auto groups = static_cast<std::uint64_t>(std::max(0, run.scale->groups));
    const double open_s =
        static_cast<double>(run.open_ns(check.line())) * nanosecond * static_cast<double>(groups);
    // Every trial was asked for, and every group was told in the end that there is none for it.
    const bool fits = search.groups_lost <= groups && search.answers >= handed_out &&
                      search.proposal_p50_s >= 0 &&
                      search.proposal_p50_s <= search.proposal_p99_s && search.idle_s >= 0 &&
                      search.idle_s <= open_s;
    check.hold(fits, "at most {} groups lost, {} answers or more, waits of {} s in all",
               "{3}, {4}, proposals of {5} and {6} s, {7} s", groups, handed_out, open_s,
               search.groups_lost, search.answers, search.proposal_p50_s, search.proposal_p99_s,
               search.idle_s);
  });
}

}  // namespace heteroperf
