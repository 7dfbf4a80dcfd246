// Sums up the lines of a journal that single ranks wrote, and sets them beside the simulator's
// prediction. Emulated devices keep to a *modelled* timeline, which is stretched by a factor, the
// *dilation*, so that the host can keep pace. Measured seconds are divided by it before they are
// compared with predicted ones. Figures that need all ranks or all classes are absent until each of
// them has reported.
#include "results/record/plan_summary.hpp"

#include <algorithm>
#include <map>

#include "metrics/base/quantity.hpp"

namespace heteroperf {
namespace {

/// Returns the share of the ranks' time in which they did not compute, for whatever reason.
std::optional<double> bubble_rate(const std::vector<RankUse>& ranks) {
  double compute_s = 0, wall_s = 0;
  for (const RankUse& use : ranks) {
    if (!use.time) return std::nullopt;
    compute_s += use.time->split.compute_s;
    wall_s += use.time->wall_s;
  }
  if (wall_s <= 0) return std::nullopt;
  return 1 - compute_s / wall_s;
}

/// Operations add up over the ranks; dilation and lateness are those of the worst one.
std::optional<PacingSummary> pacing_of(const Journal& journal) {
  const auto events = journal.all<PacingEvent>();
  if (events.empty()) return std::nullopt;
  PacingSummary sum{0, 0, 0, 0};
  for (const PacingEvent* event : events) {
    sum.dilation = std::max(sum.dilation, event->dilation);
    sum.operations += event->operations;
    sum.late += event->late;
    sum.worst_lateness_s = std::max(sum.worst_lateness_s, event->worst_lateness_s);
  }
  return sum;
}

std::optional<PredictionSummary> prediction_of(const Journal& journal,
                                               std::optional<double> step_time_s) {
  const auto* predicted = journal.last<PredictionEvent>();
  if (predicted == nullptr) return std::nullopt;
  PredictionSummary summary{*predicted, step_time_s, std::nullopt};
  if (step_time_s && predicted->step_time_s > 0) {
    summary.error_fraction = *step_time_s / predicted->step_time_s - 1;
  }
  return summary;
}

/// A plan's steps are those from its look up to the next plan's.
std::vector<AdaptSummary> looks_of(const Journal& journal, double dilation) {
  std::vector<AdaptSummary> looks;
  std::vector<double> step_s;
  AdaptSummary* in_force = nullptr;
  const auto close = [&] {
    if (in_force == nullptr || step_s.empty()) return;
    in_force->steps = step_s.size();
    std::ranges::sort(step_s);
    const double median_s = (step_s[(step_s.size() - 1) / 2] + step_s[step_s.size() / 2]) / 2;
    in_force->step_time_s = median_s / dilation;
    const double predicted_s = in_force->look.new_step_s.value_or(0);
    if (predicted_s > 0) in_force->error_fraction = *in_force->step_time_s / predicted_s - 1;
  };
  looks.reserve(journal.all<AdaptEvent>().size());
  for (const JournalLine& line : journal.lines) {
    if (const auto* step = std::get_if<StepEvent>(&line.event)) {
      step_s.push_back(seconds_of(step->t_end_ns - step->t_start_ns));
    }
    const auto* look = std::get_if<AdaptEvent>(&line.event);
    if (look == nullptr) continue;
    looks.push_back({*look, 0, {}, {}});
    if (look->decision != AdaptDecision::new_plan) continue;
    close();
    step_s.clear();
    in_force = &looks.back();
  }
  close();
  return looks;
}

/// The mix is measured by this run and planned by its prediction; each class has its own line.
std::optional<HeteroSummary> hetero_of(const Journal& journal,
                                       std::optional<double> samples_per_s) {
  const auto baselines = journal.all<BaselineEvent>();
  if (baselines.empty()) return std::nullopt;
  std::vector<ClassThroughput> measured, planned;
  for (const BaselineEvent* baseline : baselines) {
    measured.emplace_back(baseline->device_class, baseline->samples_per_s);
    planned.emplace_back(baseline->device_class, baseline->planned_samples_per_s);
  }
  const auto* predicted = journal.last<PredictionEvent>();
  std::optional<double> planned_mix;
  if (predicted != nullptr) planned_mix = predicted->samples_per_s;
  return HeteroSummary{hetero_figures(samples_per_s, measured),
                       hetero_figures(planned_mix, planned)};
}

}  // namespace

bool changes_plan(const Journal& journal) {
  const auto looks = journal.all<AdaptEvent>();
  return std::ranges::any_of(
      looks, [](const AdaptEvent* look) { return look->decision == AdaptDecision::new_plan; });
}

std::vector<RankUse> rank_uses(const Journal& journal) {
  std::map<std::int32_t, RankUse> uses;
  const auto note = [&]<class E>(std::optional<E> RankUse::*member) {
    for (const E* event : journal.all<E>()) {
      RankUse& use = uses[event->rank];
      use.rank = event->rank;
      use.*member = *event;
    }
  };
  note(&RankUse::plan);
  note(&RankUse::time);
  note(&RankUse::memory);
  std::vector<RankUse> list;
  for (auto& [rank, use] : uses) list.push_back(std::move(use));
  return list;
}

void RankTimeGroup::add(const RankTimeEvent& time) {
  // The running mean lets ranks be added one by one.
  const auto mean = [n = static_cast<double>(ranks)](double& value, double value_of_rank) {
    value = (value * n + value_of_rank) / (n + 1);
  };
  mean(wall_s, time.wall_s);
  split.with_parts_of(time.split, mean);
  steps = std::max(steps, time.steps);
  strict += time.strict;
  recompute += time.recompute;
  ++ranks;
}

double RankTimeGroup::ops_per_second() const {
  return wall_s > 0 ? strict.to_double() / wall_s : 0;
}

/// A class without a number, or with none above 0, leaves no figures: a sum without it would
/// flatter the mix.
std::optional<HeteroFigures> hetero_figures(std::optional<double> mix,
                                            const std::vector<ClassThroughput>& alone) {
  if (!mix || alone.empty()) return std::nullopt;
  HeteroFigures figures;
  figures.mix = *mix;
  for (const auto& [device_class, samples_per_s] : alone) {
    if (!samples_per_s || !(*samples_per_s > 0)) return std::nullopt;
    figures.ideal_sum += *samples_per_s;
    if (*samples_per_s <= figures.best_single) continue;
    figures.best_single = *samples_per_s;
    figures.best_class = device_class;
  }
  return figures;
}

PlanSummary summarize_plan(const Journal& journal, std::optional<double> median_step_s,
                           std::optional<double> samples_per_s) {
  PlanSummary summary;
  summary.ranks = rank_uses(journal);
  std::erase_if(summary.ranks, [](const RankUse& use) { return !use.plan && !use.time; });
  summary.bubble_rate = bubble_rate(summary.ranks);
  summary.pacing = pacing_of(journal);
  summary.samples_per_s = samples_per_s;
  if (summary.pacing && median_step_s && summary.pacing->dilation > 0) {
    *median_step_s /= summary.pacing->dilation;
    const auto* workload = journal.first<WorkloadEvent>();
    if (workload != nullptr && workload->samples_per_step) {
      summary.samples_per_s = static_cast<double>(*workload->samples_per_step) / *median_step_s;
    }
  }
  summary.looks = looks_of(
      journal, summary.pacing && summary.pacing->dilation > 0 ? summary.pacing->dilation : 1);
  // The median over the steps of several plans is no step of the predicted one.
  if (changes_plan(journal)) median_step_s.reset();
  summary.prediction = prediction_of(journal, median_step_s);
  summary.hetero = hetero_of(journal, summary.samples_per_s);
  return summary;
}

}  // namespace heteroperf
