// Computes the numbers of a record from the events of a journal; results/README.md defines each of
// them. Most numbers are of the *steady window*: the time in which every group of ranks trains and
// has warmed up, up to the moment at which the first of them stops. A step counts where it ends in
// the window. Operations are *strict*: those that the model's graph needs, whatever the program did
// to compute them; operations that were executed beyond them are told apart. Numbers that the
// journal does not give stay absent, and no rule is applied here.
#include "results/record/run_summary.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "metrics/base/hash.hpp"
#include "metrics/base/quantity.hpp"
#include "metrics/score.hpp"
#include "results/record/graph_book.hpp"

namespace heteroperf {
namespace {

using Steps = std::vector<const StepEvent*>;

/// The steps of each group keep their order.
std::map<std::int32_t, Steps> by_group(const Steps& steps) {
  std::map<std::int32_t, Steps> groups;
  for (const StepEvent* step : steps) groups[step->group].push_back(step);
  return groups;
}

/// Steps of the trial a group began with: later trials have other graphs, so their durations are no
/// continuation of the same warm-up.
std::vector<std::int64_t> first_durations(const Steps& steps) {
  std::vector<std::int64_t> durations;
  for (const StepEvent* step : steps) {
    if (step->trial != steps.front()->trial) break;
    durations.push_back(step->t_end_ns - step->t_start_ns);
  }
  return durations;
}

/// The time of measuring, as far as the journal tells it.
struct MeasurePhase {
  std::optional<std::int64_t> start_ns;  ///< from here on every group measures
  std::vector<std::int64_t> ends_ns;     ///< a group, or the whole run, trains no more

  /// The first group that stops ends the window: from then on not all of the machine is at work.
  std::optional<std::int64_t> first_end_after(std::int64_t window_start_ns) const {
    const auto end = std::find_if(ends_ns.begin(), ends_ns.end(),
                                  [&](std::int64_t t_ns) { return t_ns > window_start_ns; });
    return end == ends_ns.end() ? std::nullopt : std::optional(*end);
  }
};

/// Finds the moment from which every group measures, and the moments at which training ends. A
/// group measures from its line on. Where a busy writer was late, its first step behind the line
/// may have begun before it, and the group measures from that step: a late line may not shorten the
/// window by a step.
MeasurePhase measure_phase(const Journal& journal) {
  MeasurePhase phase;
  std::map<std::int32_t, std::int64_t> starts_ns;
  std::set<std::int32_t> before_first_step;
  for (const JournalLine& line : journal.lines) {
    if (const auto* step = std::get_if<StepEvent>(&line.event)) {
      if (before_first_step.erase(step->group) == 0) continue;
      std::int64_t& start_ns = starts_ns.at(step->group);
      start_ns = std::min(start_ns, step->t_start_ns);
    }
    const auto* event = std::get_if<PhaseEvent>(&line.event);
    if (event == nullptr) continue;
    if (event->phase == Phase::measure) {
      const std::int32_t group = event->group.value_or(0);
      starts_ns[group] = line.t_ns;
      before_first_step.insert(group);
    } else if (!starts_ns.empty() && event->phase > Phase::measure) {
      phase.ends_ns.push_back(line.t_ns);
    }
  }
  for (const auto& [group, start_ns] : starts_ns) {
    phase.start_ns = std::max(start_ns, phase.start_ns.value_or(start_ns));
  }
  return phase;
}

/// The window starts when the last group has warmed up and not before the measured phase; it ends
/// with the first group that stops. It stays absent where no step ended in it.
void find_window(const Journal& journal, const Steps& steps, RunSummary& summary) {
  if (steps.empty()) return;
  const MeasurePhase phase = measure_phase(journal);
  std::int64_t start_ns = phase.start_ns.value_or(steps.front()->t_start_ns);
  std::int64_t last_end_ns = steps.front()->t_end_ns;
  const std::int64_t measure_start_ns = start_ns;
  for (const auto& [group, group_steps] : by_group(steps)) {
    const SteadyWindow steady = find_steady_window(first_durations(group_steps));
    const std::int64_t warm_ns = steady.warmup_steps == 0
                                     ? group_steps.front()->t_start_ns
                                     : group_steps[steady.warmup_steps - 1]->t_end_ns;
    if (steady.end == WarmupEnd::still_warming) summary.warmup_end = steady.end;
    start_ns = std::max(start_ns, warm_ns);
    last_end_ns = std::max(last_end_ns, group_steps.back()->t_end_ns);
  }
  const std::int64_t end_ns = phase.first_end_after(start_ns).value_or(last_end_ns);
  summary.measured_s = seconds_of(std::max<std::int64_t>(0, end_ns - measure_start_ns));
  const TimeWindow window{start_ns, end_ns};
  const auto inside = [&](const StepEvent* step) { return window.contains(step->t_end_ns); };
  if (std::any_of(steps.begin(), steps.end(), inside)) summary.window = window;
}

/// Counts steps and operations, before, in and after the window.
void count_steps(const Steps& steps, RunSummary& summary) {
  summary.total_steps = steps.size();
  for (const StepEvent* step : steps) {
    summary.operations.strict += step->ops_strict;
    if (!summary.window) continue;
    if (step->t_end_ns <= summary.window->start_ns) ++summary.warmup_steps;
    if (!summary.window->contains(step->t_end_ns)) continue;
    ++summary.steps;
    summary.operations.window += step->ops_strict;
  }
  if (!summary.window) summary.warmup_steps = steps.size();
}

/// Pairs each step's time with an amount of work, for rates.
std::vector<StepWork> work_of(const Steps& steps, auto&& amount) {
  std::vector<StepWork> work;
  work.reserve(steps.size());
  for (const StepEvent* step : steps) {
    work.push_back({step->t_start_ns, step->t_end_ns, amount(*step)});
  }
  return work;
}

/// The unit that throughput counts.
std::vector<StepWork> units_of(const WorkloadEvent& workload, const Steps& steps) {
  return work_of(steps, [tokens = workload.counts_tokens()](const StepEvent& s) {
    return static_cast<double>(tokens ? s.tokens : s.samples);
  });
}

/// Takes the looks of a run with --until again, by their lines, and where the run did not end with
/// one (it was interrupted) one more at its steady window. `summary.window` becomes the last
/// look's, so that all rates are of the window by which the run ended.
void look_again(const Journal& journal, const Steps& steps, RunSummary& summary) {
  const auto* event = journal.first<UntilEvent>();
  const auto* workload = journal.first<WorkloadEvent>();
  if (event == nullptr || workload == nullptr || !summary.window) return;
  const PrecisionGoal goal = goal_of(*event);
  const std::vector<StepWork> units = units_of(*workload, steps);
  UntilSummary until{goal.fraction, {}, {}};
  const auto look = [&](TimeWindow window, bool settled) {
    until.looks.push_back(look_at(goal, until.looks.size() + 1, units, window, settled));
  };
  for (const LookEvent* line : journal.all<LookEvent>()) {
    if (until.looks.size() == most_looks(steps.size())) break;  // no honest run takes more
    if (line->t_start_ns < line->t_end_ns) look({line->t_start_ns, line->t_end_ns}, line->settled);
  }
  if (until.looks.empty() || until.looks.back().window.end_ns != steps.back()->t_end_ns) {
    look(*summary.window, summary.warmup_end == WarmupEnd::settled);
  }
  summary.window = until.looks.back().window;
  const auto needed = time_needed(goal, until.looks);
  if (needed && !until.reached()) {
    until.needed_s = needed->seconds + summary.measured_s - summary.window->seconds();
    until.needed_at_least = needed->at_least;
  }
  summary.until = std::move(until);
}

/// The interval of a rate; where the run took looks, that of its last look.
std::optional<Interval> interval_of(const std::vector<StepWork>& work, const Journal& journal,
                                    const RunSummary& summary) {
  if (!summary.until) return rate_interval(work, *summary.window);
  return look_at(goal_of(*journal.first<UntilEvent>()), summary.until->looks.size(), work,
                 *summary.window, summary.until->looks.back().settled)
      .interval;
}

/// Both rates divide by the whole window, so that gaps between steps count as time.
void find_rates(const Journal& journal, const Steps& steps, RunSummary& summary) {
  if (!summary.window) return;
  const TimeWindow window = *summary.window;
  const auto ops = work_of(steps, [](const StepEvent& s) { return s.ops_strict.to_double(); });
  const WindowTotal total{summary.operations.window, Seconds(window.seconds())};
  summary.ops_per_second =
      Estimate{ops_per_second(total).value(), interval_of(ops, journal, summary)};
  const auto* workload = journal.first<WorkloadEvent>();
  if (workload == nullptr) return;
  const std::vector<StepWork> units = units_of(*workload, steps);
  summary.throughput =
      Estimate{rate_per_second(units, window), interval_of(units, journal, summary)};
}

/// Ranks n/2 ± 1.96 √n / 2 of the sorted values enclose the median with 95 % probability (Hoefler
/// and Belli, SC'15, §3.1.3).
std::optional<Interval> median_interval(const std::vector<double>& sorted) {
  constexpr double normal_97_5_quantile = 1.959964;
  const auto n = static_cast<double>(sorted.size());
  const double half_width = normal_97_5_quantile * std::sqrt(n) / 2;
  const double low = std::floor(n / 2 - half_width), high = std::ceil(n / 2 + half_width);
  if (low < 0 || high > n - 1) return std::nullopt;
  return Interval{sorted[static_cast<std::size_t>(low)], sorted[static_cast<std::size_t>(high)]};
}

/// Computes quantiles over the steps of the window, those of all groups together.
void find_step_time(const Steps& steps, RunSummary& summary) {
  constexpr double tail_quantile = 0.95;
  std::vector<double> seconds;
  for (const StepEvent* step : steps) {
    if (summary.window && summary.window->contains(step->t_end_ns)) {
      seconds.push_back(seconds_of(step->t_end_ns - step->t_start_ns));
    }
  }
  if (seconds.empty()) return;
  std::sort(seconds.begin(), seconds.end());
  summary.step_time =
      StepTime{median(seconds), quantile(seconds, tail_quantile), median_interval(seconds)};
}

/// The hash over the numbers and the exact bits of the losses of the first steps: a single changed
/// rounding gives another one. Only a fixed model trained by one group has such a sequence.
std::optional<std::string> loss_fingerprint(const std::vector<const StepEvent*>& steps) {
  if (steps.size() < fingerprint_steps) return std::nullopt;
  Hash128 hash;
  for (std::size_t i = 0; i < fingerprint_steps; ++i) {
    const StepEvent& step = *steps[i];
    const bool alone = !step.trial && step.group == 0;
    if (!alone || step.n != steps.front()->n + i || !std::isfinite(step.loss)) return std::nullopt;
    hash.update(step.n).update(step.loss);
  }
  return hash.hex();
}

/// The last evaluation that calls itself final; null where the run did not come to it.
const EvalEvent* final_evaluation(const Journal& journal) {
  const EvalEvent* last_final = nullptr;
  for (const EvalEvent* eval : journal.all<EvalEvent>()) {
    if (eval->is_final.value_or(false)) last_final = eval;
  }
  return last_final;
}

bool is_better(QualityMeasure measure, double value, double than) {
  return measure == QualityMeasure::accuracy ? value > than : value < than;
}

/// The value of an evaluation that its workload is measured by.
double quality_of(const EvalEvent& eval, QualityMeasure measure) {
  return measure == QualityMeasure::accuracy ? eval.accuracy : eval.loss;
}

/// The best value of all evaluations and trials; nothing where there is none.
std::optional<QualityResult> best_quality(const Journal& journal, QualityMeasure measure) {
  std::optional<QualityResult> best;
  // The largest of equally good evaluations counts, since a target needs enough samples.
  const auto offer = [&](double value, std::uint64_t samples) {
    if (!std::isfinite(value)) return;
    if (!best || is_better(measure, value, best->value)) {
      best = QualityResult{measure, value, samples};
    } else if (value == best->value) {
      best->samples = std::max(best->samples, samples);
    }
  };
  for (const EvalEvent* eval : journal.all<EvalEvent>()) {
    offer(quality_of(*eval, measure), eval->samples);
  }
  // A trial repeats what an evaluation found; a value of its own rests on no samples.
  for (const TrialEvent* trial : journal.all<TrialEvent>()) {
    if (trial->quality) offer(*trial->quality, 0);
  }
  return best;
}

/// The best of many evaluations is mostly a lucky one, so only the final one is judged.
void find_quality(const Journal& journal, RunSummary& summary) {
  const auto* workload = journal.first<WorkloadEvent>();
  if (workload == nullptr) return;
  const QualityMeasure measure = workload->quality;
  std::optional<QualityResult> quality = best_quality(journal, measure);
  const EvalEvent* judged = final_evaluation(journal);
  if (judged != nullptr && std::isfinite(quality_of(*judged, measure))) {
    quality = QualityResult{measure, quality_of(*judged, measure), judged->samples, true};
  }
  if (!quality) return;
  quality->target = workload->quality_target;
  if (quality->target) {
    quality->met = quality->is_final && quality->samples >= fewest_quality_samples &&
                   (quality->value == *quality->target ||
                    is_better(measure, quality->value, *quality->target));
  }
  summary.quality = quality;
}

/// Only a final evaluation counts, and −ln(error) needs at least one wrong answer.
void find_regulated_score(const Journal& journal, RunSummary& summary) {
  const auto* workload = journal.first<WorkloadEvent>();
  const auto& quality = summary.quality;
  if (!quality || !quality->is_final || quality->measure != QualityMeasure::accuracy ||
      workload->family != WorkloadFamily::classifier || !summary.ops_per_second) {
    return;
  }
  RegulatedScore score;
  score.answers = quality->samples;
  if (score.answers == 0) return;
  const auto answers = static_cast<double>(score.answers);
  score.wrong =
      static_cast<std::uint64_t>(std::llround(std::clamp(1 - quality->value, 0.0, 1.0) * answers));
  const auto value = regulated_score(OpsPerSecond(summary.ops_per_second->value),
                                     static_cast<double>(score.wrong) / answers);
  if (!value) return;
  score.value = value->value();
  score.error_ci95 = error_interval(score.wrong, score.answers);
  summary.regulated_score = score;
}

/// Share of [start, end] that lies in the window, in seconds.
double seconds_inside(TimeWindow window, std::int64_t start_ns, std::int64_t end_ns) {
  const std::int64_t from = std::max(start_ns, window.start_ns);
  const std::int64_t to = std::min(end_ns, window.end_ns);
  return to > from ? seconds_of(to - from) : 0.0;
}

/// Adds up the uses of each step's time, in proportion to the part of the step that lies in the
/// window. Whatever no step or evaluation accounts for is `other_s`.
void split_time(const Journal& journal, const Steps& steps, RunSummary& summary) {
  if (!summary.window) return;
  const auto groups = static_cast<double>(by_group(steps).size());
  TimeShares sum;
  for (const StepEvent* step : steps) {
    const double length_s = seconds_of(step->t_end_ns - step->t_start_ns);
    if (length_s <= 0) continue;
    // A step that begins before the window counts with the part that lies in it.
    const double share =
        seconds_inside(*summary.window, step->t_start_ns, step->t_end_ns) / length_s / groups;
    sum.add(step->split, share);
  }
  for (const EvalEvent* eval : journal.all<EvalEvent>()) {
    sum.evaluation_s += seconds_inside(*summary.window, eval->t_start_ns, eval->t_end_ns) / groups;
  }
  const double named =
      sum.compute_s + sum.communication_s + sum.bubble_s + sum.data_s + sum.evaluation_s;
  sum.other_s = std::max(0.0, summary.window->seconds() - named);
  summary.time = sum;
}

using StepKey = std::tuple<std::int32_t, std::optional<std::uint64_t>>;

/// One observed step, summed over the ranks of its group.
struct ObservedStep {
  std::uint64_t n = 0;
  Ops executed, strict, recompute;
};

/// The observed steps of each training, by their number: its first one, and the first by each plan
/// that came into force in mid-run.
using ObservedSteps = std::map<StepKey, std::map<std::uint64_t, ObservedStep>>;

ObservedSteps observed_steps(const Journal& journal) {
  ObservedSteps observed;
  for (const ObservedEvent* event : journal.all<ObservedEvent>()) {
    ObservedStep& step = observed[{event->group, event->trial}]
                             .try_emplace(event->n, ObservedStep{event->n, {}, {}, {}})
                             .first->second;
    step.executed += event->executed;
    step.strict += event->strict;
    step.recompute += event->recompute;
  }
  return observed;
}

/// The step that was observed last when step `n` was made; null for none.
const ObservedStep* observed_for(const ObservedSteps& observed, const StepKey& key,
                                 std::uint64_t n) {
  const auto training = observed.find(key);
  if (training == observed.end()) return nullptr;
  const auto after = training->second.upper_bound(n);
  return after == training->second.begin() ? nullptr : &std::prev(after)->second;
}

/// Executed and recomputed operations of the whole run: those of an observed step per sample, times
/// the samples of the steps like it. A training that was not observed counts as its strict
/// operations, provided that nothing was recomputed in the observed ones; otherwise the totals are
/// unknown.
void extrapolate(const Steps& steps, const ObservedSteps& observed, OperationTotals& totals) {
  struct LikeSteps {
    std::uint64_t samples = 0;
    Ops strict;
    bool ragged = false;                            // steps have any number of images
    std::optional<std::uint64_t> observed_samples;  // of the step that was observed
  };
  std::map<std::pair<StepKey, const ObservedStep*>, LikeSteps> trainings;
  for (const StepEvent* step : steps) {
    const StepKey key{step->group, step->trial};
    const ObservedStep* seen = observed_for(observed, key, step->n);
    LikeSteps& like = trainings[{key, seen}];
    like.samples += step->samples;
    like.strict += step->ops_strict;
    like.ragged = like.ragged || step->images.has_value();
    if (seen != nullptr && seen->n == step->n && !like.observed_samples) {
      like.observed_samples = step->samples;
    }
  }
  // A training that was not observed is taken to have recomputed nothing where no other one did.
  bool recomputes = false;
  for (const auto& [key, training] : observed) {
    for (const auto& [n, step] : training) recomputes |= step.recompute != Ops();
  }
  Ops executed, recompute;
  for (const auto& [key, like] : trainings) {
    if (like.observed_samples.value_or(0) == 0) {
      if (recomputes) return;
      executed += like.strict;
      continue;
    }
    const ObservedStep& step = *key.second;
    const auto per_sample = [&](Ops ops) { return ops * like.samples / *like.observed_samples; };
    // One of several unlike steps tells only what comes on top of the strict operations.
    executed += like.ragged && step.executed >= step.strict
                    ? like.strict + per_sample(step.executed - step.strict)
                    : per_sample(step.executed);
    recompute += per_sample(step.recompute);
  }
  totals.executed = executed;
  totals.recompute = recompute;
}

/// A single step without a known graph leaves the whole count unknown.
std::optional<Ops> sum_over(const Steps& steps, const GraphBook& graphs, GraphBook::Pass pass) {
  if (steps.empty()) return std::nullopt;
  Ops sum;
  for (const StepEvent* step : steps) {
    const auto ops = graphs.count(step->trial, step->samples, pass);
    if (!ops) return std::nullopt;
    sum += *ops;
  }
  return sum;
}

/// AIPerf's convention and padding are matters of classifiers, where every step's graph is known.
void count_operations(const Journal& journal, const Steps& steps, RunSummary& summary) {
  OperationTotals& totals = summary.operations;
  for (const EvalEvent* eval : journal.all<EvalEvent>()) totals.evaluation += eval->ops_strict;
  const auto observed = observed_steps(journal);
  if (!observed.empty()) {
    extrapolate(steps, observed, totals);
    const ObservedStep& first = observed.begin()->second.begin()->second;
    totals.per_step_strict = first.strict;
    totals.per_step_executed = first.executed;
  } else if (!steps.empty()) {
    totals.per_step_strict = steps.front()->ops_strict;
  }
  const auto* workload = journal.first<WorkloadEvent>();
  if (workload == nullptr || workload->family != WorkloadFamily::classifier) return;
  const GraphBook graphs(journal);
  totals.aiperf = sum_over(steps, graphs, GraphBook::Pass::aiperf_train);
  totals.padding = sum_over(steps, graphs, GraphBook::Pass::padding_train);
}

/// The list's index is the rank, so it is empty unless every rank reported.
void collect_memory(const Journal& journal, RunSummary& summary) {
  std::map<std::int32_t, std::uint64_t> peaks;
  for (const MemoryEvent* event : journal.all<MemoryEvent>()) {
    std::uint64_t& peak = peaks[event->rank];
    peak = std::max(peak, event->peak_bytes);
  }
  const auto* scale = journal.last<ScaleEvent>();
  if (scale == nullptr || static_cast<std::int64_t>(peaks.size()) != scale->ranks) return;
  for (const auto& [rank, peak] : peaks) summary.peak_bytes.push_back(peak);
}

/// Groups' waiting at the master over the time in which they could have trained.
std::optional<double> idle_fraction(const Journal& journal) {
  const auto* scale = journal.last<ScaleEvent>();
  const auto* first = journal.first<TrialEvent>();
  for (auto line = journal.lines.rbegin(); line != journal.lines.rend(); ++line) {
    const auto* search = std::get_if<SearchEvent>(&line->event);
    if (search == nullptr) continue;
    if (scale == nullptr || first == nullptr || line->t_ns <= first->t_start_ns) break;
    // Each group could have trained from the first trial's start to the master's last line.
    const double each_s = seconds_of(line->t_ns - first->t_start_ns);
    return search->idle_s / (each_s * scale->groups);
  }
  return std::nullopt;
}

/// A trial counts by its last line. The best one is the one that was finally evaluated; without a
/// final evaluation it is the one of the best quality.
void summarize_search(const Journal& journal, RunSummary& summary) {
  std::map<std::uint64_t, const TrialEvent*> last;
  std::set<std::string> graphs;
  for (const TrialEvent* trial : journal.all<TrialEvent>()) {
    last[trial->id] = trial;
    graphs.insert(trial->graph_hash);
  }
  if (last.empty()) return;
  SearchSummary search;
  search.trials = last.size();
  search.unique_graphs = graphs.size();
  const auto* workload = journal.first<WorkloadEvent>();
  const QualityMeasure measure = workload == nullptr ? QualityMeasure::accuracy : workload->quality;
  const TrialEvent* best = nullptr;
  for (const auto& [id, trial] : last) {
    ++search.ended[trial->state];
    if (!trial->quality || !std::isfinite(*trial->quality)) continue;
    if (best == nullptr || is_better(measure, *trial->quality, *best->quality)) best = trial;
  }
  const EvalEvent* judged = final_evaluation(journal);
  if (judged != nullptr && judged->trial && last.contains(*judged->trial)) {
    best = last[*judged->trial];
  }
  if (best != nullptr) search.best = *best;
  search.idle_fraction = idle_fraction(journal);
  summary.search = search;
}

/// A journal without a `stop` line is that of a run that was killed, or that still goes on.
void find_status(const Journal& journal, RunSummary& summary) {
  summary.reason = "the journal ends without a 'stop' line (the process was killed?)";
  if (const auto* stop = journal.last<StopEvent>()) {
    summary.status = stop->status;
    summary.reason = stop->reason;
  }
  summary.wall_s = seconds_of(journal.lines.back().t_ns - journal.lines.front().t_ns);
}

/// The figures of the plan, in samples whatever the throughput counts.
void find_plan(const Journal& journal, RunSummary& summary) {
  const auto* workload = journal.first<WorkloadEvent>();
  std::optional<double> median_s, samples_per_s;
  if (summary.step_time) median_s = summary.step_time->median_s;
  if (summary.throughput && workload != nullptr) {
    samples_per_s = summary.throughput->value / workload->units_of_sample();
  }
  summary.plan = summarize_plan(journal, median_s, samples_per_s);
}

/// The share of the operations that no implementation can leave out.
double inside_share(const OperationTotals& totals) {
  if (!totals.padding || totals.strict == Ops()) return 1;
  return 1 - totals.padding->to_double() / totals.strict.to_double();
}

/// Emulated devices have other ceilings than this machine's peak, so they have no utilization.
void find_fractions(const Journal& journal, RunSummary& summary) {
  const auto* overhead = journal.last<OverheadEvent>();
  if (overhead != nullptr && summary.wall_s > 0) {
    summary.measurement_overhead_fraction = overhead->measurement_s / summary.wall_s;
  }
  const auto peak = measured_peak(journal);
  if (peak && std::isfinite(peak->ops_per_second) && peak->ops_per_second > 0 &&
      summary.ops_per_second && emulated_devices(journal) == nullptr) {
    summary.utilization =
        summary.ops_per_second->value * inside_share(summary.operations) / peak->ops_per_second;
  }
}

}  // namespace

PrecisionGoal goal_of(const UntilEvent& until) {
  return {until.requested_fraction,
          until.fewest_steps,
          until.fewest_s,
          until.blocks,
          until.fewest_blocks.value_or(until.blocks),
          until.misses};
}

/// A peak is measured before the first step and after the last; other load can only lower it, so
/// the greater one is nearer to the truth. Only the first line tells of memory.
std::optional<PeakEvent> measured_peak(const Journal& journal) {
  const auto rate = [](const PeakEvent& peak) {
    return std::isfinite(peak.ops_per_second) ? peak.ops_per_second : 0;
  };
  const auto tells_memory = [](const PeakEvent& peak) {
    return peak.memory_bytes_per_second || !peak.memory_reason.empty();
  };
  const PeakEvent* greatest = nullptr;
  const PeakEvent* of_memory = nullptr;
  for (const PeakEvent* peak : journal.all<PeakEvent>()) {
    if (greatest == nullptr || rate(*peak) > rate(*greatest)) greatest = peak;
    if (of_memory == nullptr && tells_memory(*peak)) of_memory = peak;
  }
  if (greatest == nullptr) return std::nullopt;
  PeakEvent result = *greatest;
  if (of_memory != nullptr) {
    result.memory_bytes_per_second = of_memory->memory_bytes_per_second;
    result.memory_reason = of_memory->memory_reason;
  }
  return result;
}

double substituted_share(const Journal& journal) {
  std::map<std::int32_t, double> shares;
  for (const SubstitutionEvent* event : journal.all<SubstitutionEvent>()) {
    if (event->steps_s > 0) shares[event->rank] += event->seconds / event->steps_s;
  }
  double largest = 0;
  for (const auto& [rank, share] : shares) largest = std::max(largest, share);
  return largest;
}

const DeviceCount* emulated_devices(const Journal& journal) {
  const auto* scale = journal.last<ScaleEvent>();
  if (scale == nullptr) return nullptr;
  for (const DeviceCount& device : scale->devices) {
    if (device.emulated) return &device;
  }
  return nullptr;
}

RunSummary summarize(const Journal& journal) {
  RunSummary summary;
  const Steps steps = journal.all<StepEvent>();
  // Each function may read the numbers that those above it have set.
  find_status(journal, summary);
  find_window(journal, steps, summary);
  look_again(journal, steps, summary);
  count_steps(steps, summary);
  find_rates(journal, steps, summary);
  find_step_time(steps, summary);
  summary.loss_fingerprint = loss_fingerprint(steps);
  find_quality(journal, summary);
  find_regulated_score(journal, summary);
  split_time(journal, steps, summary);
  count_operations(journal, steps, summary);
  collect_memory(journal, summary);
  summarize_search(journal, summary);
  find_fractions(journal, summary);
  find_plan(journal, summary);
  summary.components = summarize_components(journal);
  return summary;
}

}  // namespace heteroperf
