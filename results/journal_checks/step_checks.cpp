// These checks hold steps, evaluations, looks, checkpoints and the end of a run to the request, the
// plan and the model. A step trains as many samples as the plan says, or as its trial's batch gives
// on all ranks of the trial's group. An evaluation answers whole questions. A *look* is the moment
// at which a run with --until asks whether its throughput is known well enough; looks follow from
// the steps alone, so they are taken again here. The end of a run must be what its lines bear out:
// it may not call itself complete without having done what was asked for.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "metrics/base/quantity.hpp"
#include "metrics/precision_goal.hpp"
#include "metrics/score.hpp"
#include "results/journal_checks/checked_journal.hpp"
#include "results/record/run_summary.hpp"
#include "workloads/data/step_samples.hpp"
#include "workloads/graph/graph_counts.hpp"
#include "workloads/workload_factories.hpp"

namespace heteroperf {
namespace {

constexpr double whole_tolerance = 1e-9;  // a share of the count
// A phase line is written a moment after the phase was decided on.
constexpr double late_line_share = 0.1, late_line_s = 1;

/// The group and the batch of each trial, by the lines so far; of several lines the last one
/// counts.
class TrialPlaces {
 public:
  void operator()(const TrialEvent& trial) {
    places_[trial.id] = {trial.group, batch_of_trial(trial.hyper_parameters)};
  }
  std::optional<std::int32_t> group(std::uint64_t trial) const {
    const auto place = places_.find(trial);
    return place == places_.end() ? std::nullopt : std::optional(place->second.group);
  }
  /// Samples of a step of this trial; 0: it is none that a line of the journal began.
  std::uint64_t samples(const CheckedJournal& run, std::uint64_t trial) const {
    const auto place = places_.find(trial);
    if (place == places_.end() || !is_group(run, place->second.group)) return 0;
    const auto& groups = run.outline.plan->groups;
    const std::size_t group = place->second.group;
    return group < groups.size() ? place->second.batch * groups[group].size() *
                                       static_cast<std::uint64_t>(run.outline.trial_micro_batches)
                                 : 0;
  }

 private:
  struct Place {
    std::int32_t group = 0;
    std::uint64_t batch = 0;
  };
  std::map<std::uint64_t, Place> places_;
};

/// Names the two kinds of training in a message.
std::string_view training_kind(bool of_trial) {
  return of_trial ? "of a trial" : "of the one model";
}

/// A step or an evaluation belongs to a group of the run. In a search it also names its trial,
/// whose group it has; in a run of a fixed model it names none.
template <class E>
void hold_place(const CheckedJournal& run, const E& event, const TrialPlaces& trials,
                LineCheck& check) {
  check.hold(is_group(run, event.group), "a group of the run", "group {}", event.group);
  check.equal("it is", training_kind(run.is_search()), training_kind(event.trial.has_value()));
  const auto group = event.trial ? trials.group(*event.trial) : std::nullopt;
  if (group) check.equal("group", *group, event.group);
}

/// The rule by which the final evaluation of this run takes its samples.
FinalEvaluation final_evaluation_of(const CheckedJournal& run) {
  return {run.workload->family == WorkloadFamily::classifier, run.outline.asked->quick,
          std::ranges::any_of(run.scale->devices, &DeviceCount::emulated),
          run.outline.asked->evaluation_samples};
}

/// A final evaluation goes on until enough answers are wrong for an error rate that means
/// something, or until it has seen the most samples that the rule allows.
void hold_final_samples(const CheckedJournal& run, const EvalEvent& eval, LineCheck& check) {
  if (!is_generated(run.outline.asked->data)) return;  // the files say how many there are
  const FinalEvaluation rule = final_evaluation_of(run);
  const std::uint64_t fewest = rule.asked_samples, most = rule.most_generated_samples();
  const double wrong = std::round((1 - eval.accuracy) * static_cast<double>(eval.samples));
  const bool is_enough = wrong >= static_cast<double>(enough_wrong_answers) || eval.samples == most;
  check.hold(fewest <= eval.samples && eval.samples <= most && is_enough,
             "{} to {} samples, until {} answers are wrong", "{3} samples, {4} wrong", fewest, most,
             enough_wrong_answers, eval.samples, wrong);
}

/// Generated data always suffice for the samples that were asked for. Files may hold fewer, and
/// then the same number for all evaluations, so the first one sets it.
void hold_evaluated_samples(const CheckedJournal& run, const EvalEvent& eval,
                            const EvalEvent& first, LineCheck& check) {
  const bool counts_errors = eval.is_final.value_or(false) && run.workload && run.scale &&
                             final_evaluation_of(run).goes_on_to_errors();
  if (counts_errors) return hold_final_samples(run, eval, check);
  const AskedRun& asked = *run.outline.asked;
  const std::uint64_t most = is_generated(asked.data) ? asked.evaluation_samples : first.samples;
  check.equal("samples", std::min(most, asked.evaluation_samples), eval.samples);
}

/// An accuracy is a number of right answers over the number of all answers, both whole. Of captions
/// the samples alone do not tell the number of all answers.
void hold_accuracy(const CheckedJournal& run, const EvalEvent& eval, LineCheck& check) {
  const ModelGraph* graph = run.model(eval.trial);
  if (graph == nullptr) return;
  const auto targets = static_cast<double>(eval.samples * answers_of_sample(*graph));
  const double right = eval.accuracy * targets;
  const bool whole =
      sample_of(*graph).lacks_targets() ||
      std::fabs(right - std::round(right)) <= whole_tolerance * std::max(1.0, targets);
  check.hold(whole && eval.accuracy >= 0 && eval.accuracy <= 1,
             "an accuracy of whole answers among {}", "{1}", targets, eval.accuracy);
}

/// The final evaluation is the last one, and nothing is trained after it.
void hold_final_evaluation(const CheckedJournal& run, LineCheck& check) {
  std::size_t final_line = 0;
  check.each(run.journal, [&]<class E>(const E& event) {
    constexpr bool evaluates = std::is_same_v<E, EvalEvent>;
    check.hold(final_line == 0 || !(evaluates || std::is_same_v<E, StepEvent>),
               "no more after the final evaluation in line {}", "{1}", final_line,
               kind_name(run.journal.lines[check.line() - 1].event));
    if constexpr (evaluates) {
      if (event.is_final.value_or(false)) final_line = check.line();
    }
  });
}

/// A look of a run that ends once its throughput is known, and what its steps make of it.
struct TakenLook {
  const LookEvent* said = nullptr;    ///< null: one was due before this line, and there is none
  std::optional<PrecisionLook> made;  ///< nothing: it was not the time for one
};

/// Takes the looks of such a run again, after the same steps: calls `visit(look)` with each, at its
/// line. One for which it is not the time is the last of the run, which is taken whatever the time;
/// no step follows it, nor one that has found the precision reached.
template <class Visit>
void take_looks(const CheckedJournal& run, LineCheck& check, Visit&& visit) {
  const auto until = run.first<UntilEvent>();
  if (!until || !run.workload || run.is_lockstep()) return;
  PrecisionWatch watch(goal_of(*until.event));
  bool measuring = false, ended = false, looked = true;
  const auto begin = [&](const PhaseEvent& phase) {
    if (phase.phase != Phase::measure) return;
    measuring = true;
    watch.begin();
  };
  const auto add = [&](const StepEvent& step) {
    if (measuring && (ended || watch.is_due())) visit(TakenLook{});
    watch.add({step.t_start_ns, step.t_end_ns,
               static_cast<double>(run.workload->counts_tokens() ? step.tokens : step.samples)});
    looked = !measuring;
  };
  check.each(run.journal, begin, add, [&](const LookEvent& said) {
    looked = true;
    TakenLook look{&said, {}};
    if (!ended) {
      ended = !watch.is_due();
      look.made =
          watch.look(ended ? PrecisionWatch::Moment::last : PrecisionWatch::Moment::after_step);
      ended = ended || (look.made && look.made->reached);
    }
    visit(look);
  });
  if (!looked && run.is_complete()) visit(TakenLook{});
}

/// True where the last look found the throughput known well enough.
bool reached_precision(const CheckedJournal& run, LineCheck& check) {
  bool reached = false;
  take_looks(run, check, [&](const TakenLook& look) { reached = look.made && look.made->reached; });
  return reached;
}

/// From the line of the measured phase to that of the next one; 0 without both.
double measured_seconds(const CheckedJournal& run) {
  std::optional<std::int64_t> start_ns;
  for (const JournalLine& line : run.journal.lines) {
    const auto* phase = std::get_if<PhaseEvent>(&line.event);
    if (phase == nullptr) continue;
    if (start_ns) return seconds_of(line.t_ns - *start_ns);
    if (phase->phase == Phase::measure) start_ns = line.t_ns;
  }
  return 0;
}

/// A run by time measures as long as was asked for. The phase lines stand a moment after the
/// phases, so their distance may fall short of it by a little.
void hold_duration(const CheckedJournal& run, LineCheck& check) {
  const double asked_s = run.outline.asked->duration_s, measured_s = measured_seconds(run);
  check.hold(measured_s >= (1 - late_line_share) * asked_s - late_line_s,
             "{} s measured, as asked for", "{1} s", asked_s, measured_s);
}

/// A warning that names a rule has that rule's name in its text.
void hold_warnings(const CheckedJournal& run, LineCheck& check) {
  check.each(run.journal, [&](const WarningEvent& warning) {
    const bool named = warning.text.find(": " + warning.rule + " (") != std::string::npos;
    check.hold(warning.rule.empty() || named, "{}", "{1}", "a text of rule " + warning.rule,
               warning.text);
  });
}

}  // namespace

/// Draws again how many images the samples of a step or an evaluation have.
class ImageCounts {
 public:
  explicit ImageCounts(const CheckedJournal& run) {
    const ModelGraph* graph = run.is_search() ? nullptr : run.any_model();
    if (graph == nullptr || !items_of_samples(*graph)) return;
    ragged_ = true;
    if (!run.workload || !run.outline.asked || run.workload->seeds.empty()) return;
    seed_ = run.workload->seeds.front().second;
    if (is_generated(run.outline.asked->data)) {
      data_ = describe_generated(sample_of(*graph), seed_);
    }
  }

  void hold(const StepEvent& step, LineCheck& check) const {
    hold(step.images, check,
         [&] { return StepSamples(*data_, seed_, step.n, step.samples).images(); });
  }
  void hold(const EvalEvent& eval, LineCheck& check) const {
    hold(eval.images, check, [&] {
      const auto images = validation_images(*data_, 0, static_cast<std::int64_t>(eval.samples));
      return static_cast<std::uint64_t>(images.back());
    });
  }

 private:
  /// Files are not read again, so their numbers are only bounded.
  template <class Count>
  void hold(const std::optional<std::uint64_t>& images, LineCheck& check, Count&& count) const {
    check.equal("images given", ragged_, images.has_value());
    if (ragged_ && images && data_) check.equal("images", count(), *images);
  }

  bool ragged_ = false;
  std::uint64_t seed_ = 0;
  std::shared_ptr<const DataSource> data_;
};

/// More samples than an honest line has are not drawn.
constexpr std::uint64_t most_drawn = 1 << 20;

/// Every step has the samples that plan or trial give, and a gradient norm that is one. The norm
/// may be NaN where training diverged: in a trial, or in a run that is not complete.
void check_step_samples(const CheckedJournal& run, LineCheck& check) {
  if (!run.outline.plan) return;
  const std::uint64_t of_plan = run.is_search() ? 0 : run.outline.plan->samples_per_step();
  const bool may_diverge = run.is_search() || !run.is_complete();
  const ImageCounts images(run);
  TrialPlaces trials;
  check.each(run.journal, trials, [&](const StepEvent& step) {
    hold_place(run, step, trials, check);
    const std::uint64_t samples = step.trial ? trials.samples(run, *step.trial) : of_plan;
    check.equal("samples", samples, step.samples);
    if (step.samples == samples) images.hold(step, check);
    check.hold(step.gradient_norm >= 0 || (std::isnan(step.gradient_norm) && may_diverge),
               "a gradient_norm of 0 or more", "{}", step.gradient_norm);
  });
}

/// The tokens of a step are its samples times the tokens of one, 0 for images.
void check_step_tokens(const CheckedJournal& run, LineCheck& check) {
  check.each(run.journal, [&](const StepEvent& step) {
    const ModelGraph* graph = run.model(step.trial);
    const std::uint64_t tokens = graph == nullptr ? 0 : tokens_of_sample(*graph);
    check.equal("tokens", step.samples * tokens, step.tokens);
  });
}

/// Evaluations of a group neither overlap each other nor its steps.
void check_evaluations(const CheckedJournal& run, LineCheck& check) {
  if (!run.outline.asked) return;
  const auto first = run.first<EvalEvent>();
  std::map<std::int32_t, std::int64_t> group_end;
  const ImageCounts images(run);
  TrialPlaces trials;
  const auto note = [&](const StepEvent& step) { group_end[step.group] = step.t_end_ns; };
  check.each(run.journal, note, trials, [&](const EvalEvent& eval) {
    hold_place(run, eval, trials, check);
    hold_evaluated_samples(run, eval, *first.event, check);
    hold_accuracy(run, eval, check);
    if (eval.samples <= most_drawn) images.hold(eval, check);
    std::int64_t& last_ns = group_end.try_emplace(eval.group, eval.t_start_ns).first->second;
    check.hold(last_ns <= eval.t_start_ns && eval.t_start_ns <= eval.t_end_ns,
               "an evaluation that begins after {} ns", "from {1} to {2} ns", last_ns,
               eval.t_start_ns, eval.t_end_ns);
    last_ns = eval.t_end_ns;
  });
  hold_final_evaluation(run, check);
}

/// Takes the looks again and compares their windows; one that was due and is missing fails too.
void check_looks(const CheckedJournal& run, LineCheck& check) {
  const auto text = [](std::int64_t start_ns, std::int64_t end_ns, bool settled) {
    return fmt::format("{} to {} ns, {}", start_ns, end_ns, settled ? "settled" : "not settled");
  };
  take_looks(run, check, [&](const TakenLook& look) {
    const auto expected = [&] {
      return !look.made
                 ? "none"
                 : text(look.made->window.start_ns, look.made->window.end_ns, look.made->settled);
    };
    check.equal(
        "look", !look.said ? "one that is due before it" : expected(),
        !look.said ? "none" : text(look.said->t_start_ns, look.said->t_end_ns, look.said->settled));
  });
}

/// A checkpoint has as many steps as were done before its line, and saving it took no longer than
/// the gap between that step, or the checkpoint before, and its line.
void check_checkpoint_lines(const CheckedJournal& run, LineCheck& check) {
  if (run.is_lockstep()) return;  // whose times leave out what it stood still
  std::uint64_t done = run.first_step();
  std::int64_t free_ns = run.journal.lines.empty() ? 0 : run.journal.lines.front().t_ns;
  const auto count = [&](const StepEvent& step) {
    done = step.n + 1;
    free_ns = step.t_end_ns;
  };
  check.each(run.journal, count, [&](const CheckpointEvent& saved) {
    check.equal("n", done, saved.n);
    const std::int64_t t_ns = run.journal.lines[check.line() - 1].t_ns;
    const double gap_s = seconds_of(t_ns - free_ns);
    check.hold(saved.seconds >= 0 && saved.seconds <= gap_s, "at most the {} s since the last step",
               "{1} s", gap_s, saved.seconds);
    free_ns = t_ns;
  });
}

/// A complete run has these lines, whoever wrote it. A run in lockstep owes no evaluation.
void hold_due_lines(const CheckedJournal& run, LineCheck& check) {
  const auto due = [&](const char* what, bool said) { check.equal(what, true, said); };
  due("an overhead line before it:", run.journal.first<OverheadEvent>() != nullptr);
  if (run.is_search()) {
    due("a search line before it:", run.journal.first<SearchEvent>() != nullptr);
  } else if (!run.is_lockstep()) {
    due("an evaluation before it:", run.journal.first<EvalEvent>() != nullptr);
  }
}

/// A run may not say of itself what its lines deny: a warning of a rule names that rule, and a run
/// that calls itself complete did what was asked for and says what it owes.
void check_ending(const CheckedJournal& run, LineCheck& check) {
  hold_warnings(run, check);
  const auto* stop = run.journal.last<StopEvent>();  // in the last line
  if (stop == nullptr) return;
  const bool bad_code = (stop->status == RunStatus::complete && stop->exit_code != 0) ||
                        (stop->status == RunStatus::failed && stop->exit_code == 0);
  check.hold(!bad_code, "an exit code of a run that is {}", "{1}", to_string(stop->status),
             std::to_string(stop->exit_code));
  const bool needs_no_reason = stop->status == RunStatus::complete && !run.is_search();
  check.equal("reason given", !needs_no_reason && !stop->reason.empty(), !stop->reason.empty());
  if (stop->status == RunStatus::complete) hold_due_lines(run, check);
  const bool measured = run.outline.asked && run.workload && !run.is_search();
  if (!measured || run.is_lockstep() || stop->status != RunStatus::complete) return;
  if (reached_precision(run, check)) return;
  if (run.outline.asked->steps == 0) return hold_duration(run, check);
  const auto* last = run.journal.last<StepEvent>();
  check.equal("steps", std::max(run.outline.asked->steps, run.first_step()),
              last == nullptr ? run.first_step() : last->n + 1);
}

}  // namespace heteroperf
