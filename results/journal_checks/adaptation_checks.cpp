// These checks hold the looks at the plan of a training that adapts. Each look follows as many
// measured steps as were asked for, and says the median of their times. Its classes follow from its
// ranks, its deviation from the classes, its gain from the two predictions, and its decision from
// both and the threshold. A new plan has every rank and the samples of a step.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "metrics/base/error.hpp"
#include "metrics/base/quantity.hpp"
#include "metrics/statistics.hpp"
#include "results/journal_checks/checked_journal.hpp"

namespace heteroperf {
namespace {

void hold_near(const char* field, double expected, double actual, LineCheck& check) {
  check.hold(near(expected, actual), "{} {}", "{0} {2}", std::string(field), expected, actual);
}

/// The ranks of a look in their order, and the means of their classes.
void hold_classes(const CheckedJournal& run, const AdaptEvent& look, LineCheck& check) {
  check.equal("ranks", run.ranks(), static_cast<std::int64_t>(look.ranks.size()));
  std::map<std::string, ClassComputing> classes;
  for (std::size_t r = 0; r < look.ranks.size(); ++r) {
    const RankComputing& rank = look.ranks[r];
    check.equal("rank", static_cast<std::int32_t>(r), rank.rank);
    const auto name = run.device_class(rank.rank);
    if (!name) return;  // the plan does not say
    ClassComputing& sum = classes[*name];
    ++sum.ranks;
    sum.planned_s += rank.planned_s;
    sum.measured_s += rank.measured_s;
  }
  // Times that cannot be those of the machine have no classes, and the look says why.
  if (look.classes.empty() && !look.reason.empty()) return;
  check.equal("classes", classes.size(), look.classes.size());
  for (const ClassComputing& told : look.classes) {
    const ClassComputing& sum = classes[told.device_class];
    check.equal("ranks of a class", sum.ranks, told.ranks);
    if (sum.ranks == 0) continue;
    hold_near("planned_s", sum.planned_s / sum.ranks, told.planned_s, check);
    hold_near("measured_s", sum.measured_s / sum.ranks, told.measured_s, check);
  }
}

void hold_decision(const AdaptEvent& look, LineCheck& check) {
  double least = 1, most = 1;
  for (const ClassComputing& told : look.classes) {
    check.hold(told.planned_s > 0 && told.measured_s > 0, "times above 0", "{} and {} s",
               told.planned_s, told.measured_s);
    least = std::min(least, told.measured_s / told.planned_s);
    most = std::max(most, told.measured_s / told.planned_s);
  }
  hold_near("deviation", most / least - 1, look.deviation, check);
  check.hold(look.planned_step_s > 0 && look.kept_step_s.value_or(1) > 0 &&
                 look.new_step_s.value_or(1) > 0,
             "steps above 0 s", "{} s planned", look.planned_step_s);
  check.equal("gain given", look.new_step_s.has_value(), look.gain.has_value());
  check.equal("reason given", look.decision == AdaptDecision::no_gain && !look.gain,
              !look.reason.empty());
  check.equal("moved_bytes given", !look.plan.text.empty(), look.moved_bytes.has_value());
  if (look.gain && look.kept_step_s && look.new_step_s) {
    hold_near("gain", *look.kept_step_s / *look.new_step_s - 1, *look.gain, check);
  }
  const AdaptDecision expected = look.gain.value_or(0) > look.threshold ? AdaptDecision::new_plan
                                 : look.deviation > look.threshold || !look.reason.empty()
                                     ? AdaptDecision::no_gain
                                     : AdaptDecision::as_planned;
  check.equal("decision", expected, look.decision);
  check.equal("a plan given", look.decision == AdaptDecision::new_plan, !look.plan.text.empty());
}

void hold_new_plan(const CheckedJournal& run, const AdaptEvent& look, LineCheck& check) {
  try {
    const PlanOutline plan = read_plan_outline(look.plan.text);
    check.equal("summary", plan.shape().line(), look.summary);
    check.equal("ranks of the plan", run.ranks(), static_cast<std::int64_t>(plan.places.size()));
    if (!run.outline.plan) return;
    check.equal("samples_per_step", run.outline.plan->samples_per_step(), plan.samples_per_step());
    check.equal("graph_hash", run.outline.plan->graph_hash, plan.graph_hash);
  } catch (const UserError& error) {
    check.hold(false, "a plan", "{}", std::string(error.what()));
  }
}

}  // namespace

void check_adaptations(const CheckedJournal& run, LineCheck& check) {
  const std::uint64_t every = run.start ? run.start->adapt_every.value_or(0) : 0;
  const auto pacing = run.first<PacingEvent>();
  const double dilation = pacing && pacing->dilation > 0 ? pacing->dilation : 1;
  std::uint64_t done = run.first_step();
  std::int64_t free_ns = 0;
  bool measuring = false;
  std::vector<double> step_s;  // measured since the look before
  const auto note_phase = [&](const PhaseEvent& phase) {
    measuring = phase.phase == Phase::measure;
  };
  const auto note_step = [&](const StepEvent& step) {
    done = step.n + 1;
    free_ns = step.t_end_ns;
    if (measuring) step_s.push_back(seconds_of(step.t_end_ns - step.t_start_ns));
  };
  check.each(run.journal, note_phase, note_step, [&](const AdaptEvent& look) {
    check.equal("n", done, look.n);
    check.equal("steps since the look before", every, static_cast<std::uint64_t>(step_s.size()));
    if (run.outline.asked) {
      check.equal("threshold", run.outline.asked->replan_threshold, look.threshold);
    }
    // Before a run ends, emulated devices have not said by how much their time is stretched.
    const bool has_scale = pacing || (run.scale && !run.scale->devices.empty() &&
                                      !run.scale->devices.front().emulated);
    if (!step_s.empty() && has_scale) {
      hold_near("measured_step_s", upper_median(step_s) / dilation, look.measured_step_s, check);
    }
    step_s.clear();
    hold_classes(run, look, check);
    hold_decision(look, check);
    if (!look.plan.text.empty()) hold_new_plan(run, look, check);
    const std::int64_t t_ns = run.journal.lines[check.line() - 1].t_ns;
    const double away_s = look.search_s.value_or(0) + look.move_s.value_or(0);
    check.hold(away_s >= 0 && away_s <= seconds_of(t_ns - free_ns),
               "at most the {} s since the last step", "{1} s", seconds_of(t_ns - free_ns), away_s);
    free_ns = t_ns;
  });
}

}  // namespace heteroperf
