// These checks hold what single ranks and their hosts say: their place in the plan, what was
// observed on them, where their time went, and the parameters that they ended with.
//
// A line that tells of a fault may not be taken out of a journal, so of a run that calls itself
// complete every rank must have spoken. A host's load and a GPU's slowdown are told where the
// kernel and the driver tell them: none of these lines is due.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "metrics/base/quantity.hpp"
#include "results/journal_checks/checked_journal.hpp"
#include "workloads/graph/graph_counts.hpp"

namespace heteroperf {
namespace {

constexpr std::uint64_t most_memory_bytes = std::uint64_t{1} << 53;  // an exact JSON number
constexpr double clock_share = 0.01;   // by which two hosts' clocks may run apart
constexpr double shortest_span_s = 1;  // that such a share is looked at in

/// Fails for a line that is due and is missing; the message points at the journal's last line.
template <class E>
void miss(const CheckedJournal& run, const std::string& whose, LineCheck& check) {
  check.at(run.journal.lines.size());
  check.hold(false, "a {} line of {} before it", "none", kind_name(E{}), whose);
}

/// Holds a kind of line that each rank of the run writes once.
template <class E>
class EachRank {
 public:
  EachRank(const CheckedJournal& run, LineCheck& check) : run_(run), check_(check) {}

  void hold(const E& event) {
    const bool is_new = seen_.insert(event.rank).second;
    check_.hold(is_new && event.rank >= 0 && event.rank < run_.ranks(),
                "one line for each of {} ranks", "{1} of rank {2}", run_.ranks(),
                is_new ? "a line" : "a second line", event.rank);
  }
  /// Tells the first rank whose line a complete run lacks; a run that was cut off may lack any.
  void expect_all() const {
    if (!run_.is_complete()) return;
    for (std::int32_t rank = 0; rank < run_.ranks(); ++rank) {
      if (!seen_.contains(rank)) return miss<E>(run_, fmt::format("rank {}", rank), check_);
    }
  }

 private:
  const CheckedJournal& run_;
  LineCheck& check_;
  std::set<std::int32_t> seen_;
};

/// A rank belongs to one group by the plan, and its line names that group.
void hold_group(const CheckedJournal& run, const auto& event, LineCheck& check) {
  if (!run.outline.plan) return;
  const std::int32_t expected = run.outline.plan->place_of(event.rank).group;
  check.hold(
      expected >= 0 && expected == event.group, "{}", "rank {1} in group {2}",
      expected < 0 ? "a rank of the run" : fmt::format("rank {} in group {}", event.rank, expected),
      event.rank, event.group);
}

/// Holds a kind of line that each rank writes once per training in which it takes part. A fixed
/// model is one training, under each of its plans where it adapts; a search has one per trial, in
/// which the trial's group takes part.
template <class E>
class EachTraining {
 public:
  EachTraining(const CheckedJournal& run, LineCheck& check) : run_(run), check_(check) {
    for (const TrialEvent* trial : run.journal.all<TrialEvent>()) {
      group_of_trial_.emplace(trial->id, trial->group);
      last_state_[trial->id] = trial->state;
    }
  }
  /// `plan`: a line of each plan of the training is due; 0: one of the training.
  void hold(const E& event, std::size_t plan = 0) {
    hold_group(run_, event, check_);
    const bool is_new = seen_.emplace(event.rank, event.trial, plan).second;
    const auto place = group_of_trial_.find(event.trial.value_or(0));
    const bool of_group =
        !event.trial || (place != group_of_trial_.end() && place->second == event.group);
    check_.hold(is_new && of_group && event.trial.has_value() == run_.is_search(),
                "one line of a training of group {}", "{1} of {2}", event.group,
                is_new ? "a line" : "a second line",
                event.trial ? fmt::format("trial {}", *event.trial) : "the one model");
  }
  /// At the end, where a complete run has such a line of each rank of each training that took a
  /// step. After one that `may_fail` a rank may have no model any more, and nothing to say.
  void expect_all(bool may_fail) const {
    if (!run_.is_complete() || !run_.outline.plan) return;
    const auto& groups = run_.outline.plan->groups;
    std::set<std::optional<std::uint64_t>> trainings;
    for (const StepEvent* step : run_.journal.all<StepEvent>()) {
      const std::size_t group = step->group;
      if (!trainings.insert(step->trial).second || group >= groups.size()) continue;
      if (may_fail && step->trial && ended_badly(*step->trial)) continue;
      for (const std::int32_t rank : groups[group]) {
        if (seen_.contains({rank, step->trial, 0})) continue;
        const std::string trial = step->trial ? fmt::format(" on trial {}", *step->trial) : "";
        return miss<E>(run_, fmt::format("rank {}{}", rank, trial), check_);
      }
    }
  }

 private:
  bool ended_badly(std::uint64_t trial) const {
    const auto last = last_state_.find(trial);
    return last == last_state_.end() || last->second == TrialStatus::failed;
  }

  const CheckedJournal& run_;
  LineCheck& check_;
  std::map<std::uint64_t, std::int32_t> group_of_trial_;
  std::map<std::uint64_t, TrialStatus> last_state_;
  std::set<std::tuple<std::int32_t, std::optional<std::uint64_t>, std::size_t>> seen_;
};

/// Returns null where no rank has this number.
const RankHome* home_of_rank(const CheckedJournal& run, std::int32_t rank) {
  const std::size_t place = rank;
  return rank >= 0 && place < run.outline.homes.size() ? &run.outline.homes[place] : nullptr;
}

/// The CPUs that ranks of a host may use, each counted once, and the first of these ranks.
struct HostShare {
  std::size_t first_rank = 0;
  CpuRanges cpus = {};
  std::uint64_t cpu_count = 0;
};

std::map<std::string, HostShare> host_shares(const std::vector<RankHome>& homes) {
  std::map<std::string, HostShare> shares;
  for (std::size_t rank = 0; rank < homes.size(); ++rank) {
    const CpuRanges& of_rank = homes[rank].cpus;
    HostShare& share = shares.try_emplace(homes[rank].host, HostShare{rank}).first->second;
    share.cpus.insert(share.cpus.end(), of_rank.begin(), of_rank.end());
  }
  for (auto& [host, share] : shares) share.cpu_count = count_cpus(std::move(share.cpus));
  return shares;
}

/// A host or a GPU is watched no longer than the journal is open. The watching host's clock may run
/// apart from the journal's, which is rank 0's, by a small share.
void hold_watched_time(const CheckedJournal& run, double seconds, LineCheck& check) {
  const double open_s = seconds_of(run.open_ns(check.line()));
  // In lockstep the clock of the journal stands still at times.
  const bool fits = run.is_lockstep() || seconds <= (1 + clock_share) * open_s + shortest_span_s;
  check.hold(seconds > 0 && fits, "at most {} s", "{1} s", open_s, seconds);
}

std::string listed_stages(const std::vector<std::int32_t>& stages) {
  return fmt::format("{}", fmt::join(stages, ","));
}

/// Ranks with the same work hold as much of all but the optimizer states, which may be spread
/// unevenly.
std::string held_bytes(const RankPlanEvent& plan) {
  return fmt::format("{} of weights, {} of gradients, {} of activations, {} of buffers",
                     plan.weights_bytes, plan.gradients_bytes, plan.activations_bytes,
                     plan.buffers_bytes);
}

/// Equal for ranks with the same work: of each of their stages the same part and as many samples.
std::string work_text(const PlanOutline& plan, const RankPlanEvent& event) {
  std::string text = event.device_class;
  for (const HeldStage& part : plan.place_of(event.rank).held) {
    text += fmt::format("; {}: {} of {}", part.stage, part.tensor_index, part.tensor_degree);
    for (const OutlinedReplica& replica : plan.stages[static_cast<std::size_t>(part.stage)]) {
      if (std::ranges::find(replica.ranks, event.rank) == replica.ranks.end()) continue;
      text += fmt::format(" with {}", replica.micro_batch);
      if (!replica.equals_other_parts()) text += fmt::format(", part {}", replica.part);
    }
  }
  return text;
}

/// The plan gives a rank its stages, its position, its part of split layers and its device class.
void hold_place_in_plan(const CheckedJournal& run, const RankPlanEvent& event, LineCheck& check) {
  const PlanOutline& plan = *run.outline.plan;
  const OutlinedRank& place = plan.place_of(event.rank);
  const std::vector<HeldStage>& held = place.held;
  if (held.empty()) return;  // the rank is none of the run
  std::vector<std::int32_t> stages;
  for (const HeldStage& part : held) stages.push_back(part.stage);
  check.equal("stages", listed_stages(stages), listed_stages(event.stages));
  check.equal("position", place.position, event.position);
  check.equal("tensor_index", held.front().tensor_index, event.tensor_index);
  check.equal("tensor_degree", held.front().tensor_degree, event.tensor_degree);
  if (const auto name = run.device_class(event.rank)) {
    check.equal("device_class", *name, event.device_class);
  }
}

/// Steps of the measured phase: the number of the first, how many, their times and operations.
struct MeasuredSpan {
  std::optional<std::uint64_t> first;
  std::uint64_t count = 0;
  std::int64_t start_ns = 0, end_ns = 0, longest_ns = 0;
  /// Between the first one and what was before it: the first rank writes to its disk there, while
  /// others may already have begun.
  std::int64_t pause_ns = 0;
  StepSplit split;  ///< summed, mean over the ranks
};

/// Collects the steps that stand behind the phase line `measure`.
MeasuredSpan measured_steps_of(const Journal& journal) {
  MeasuredSpan steps;
  bool measuring = false;
  std::int64_t before_ns = 0;
  for (const JournalLine& line : journal.lines) {
    const auto* phase = std::get_if<PhaseEvent>(&line.event);
    if (phase != nullptr && phase->phase == Phase::measure) measuring = true;
    const auto* step = std::get_if<StepEvent>(&line.event);
    if (!measuring) before_ns = step == nullptr ? line.t_ns : step->t_end_ns;
    if (step == nullptr || !measuring) continue;
    if (!steps.first) {
      steps.first = step->n;
      steps.start_ns = step->t_start_ns;
      steps.pause_ns = std::max<std::int64_t>(0, step->t_start_ns - before_ns);
    }
    ++steps.count;
    steps.end_ns = step->t_end_ns;
    steps.longest_ns = std::max(steps.longest_ns, step->t_end_ns - step->t_start_ns);
    steps.split.add(step->split);
  }
  return steps;
}

/// Other ranks may be ahead of the rank that writes the steps where the run does not end in order.
bool has_all_steps(const CheckedJournal& run) {
  const auto* stop = run.journal.last<StopEvent>();
  return stop != nullptr && stop->status != RunStatus::failed;
}

/// The observed step of each rank under each plan.
using ObservedByPlan = std::map<std::pair<std::int32_t, std::size_t>, const ObservedEvent*>;

/// All steps of a fixed model by one plan are alike, so a rank's operations are those of the step
/// that was observed on it under that plan, times the number of such steps. Where samples have any
/// number of images no two steps are alike; then `components` holds the sums over the ranks.
void hold_observed_ops(const CheckedJournal& run, const RankTimeEvent& time,
                       const ObservedByPlan& observed, LineCheck& check) {
  constexpr std::uint64_t most_plan_steps = std::uint64_t{1} << 40;
  const ModelGraph* graph = run.model(std::nullopt);
  if (graph != nullptr && items_of_samples(*graph)) return;
  const auto text = [](const Ops& strict, const Ops& recompute) {
    return fmt::format("{} strict, {} recomputed", strict.to_string(), recompute.to_string());
  };
  const std::uint64_t end = time.first_step + std::min(time.steps, most_plan_steps);
  Ops strict, recompute;
  for (std::uint64_t step = time.first_step; step < end;) {
    const std::size_t plan = run.plan_number(step);
    const auto& later = run.later_plans;
    const std::uint64_t until = plan < later.size() ? std::min(end, later[plan].first_step) : end;
    const auto seen = observed.find({time.rank, plan});
    if (seen == observed.end()) return;  // other checks tell what is missing
    strict += seen->second->strict * (until - step);
    recompute += seen->second->recompute * (until - step);
    step = until;
  }
  check.equal("operations", text(strict, recompute), text(time.strict, time.recompute));
}

/// All ranks measure the same steps, which the step lines number.
void hold_measured_steps(const CheckedJournal& run, const auto& event, const MeasuredSpan& measured,
                         LineCheck& check) {
  hold_group(run, event, check);
  if (!has_all_steps(run)) return;
  check.equal("first_step", measured.first.value_or(0), event.first_step);
  check.equal("steps", measured.count, event.steps);
}

std::string split_text(const StepSplit& split) {
  return fmt::format("{} s of computing, {} of communication, {} of bubbles, {} of data",
                     split.compute_s, split.communication_s, split.bubble_s, split.data_s);
}

/// Holds the ranks' times to one another and to the step lines. A step line has means over the
/// ranks, so the mean of the ranks' sums is the sum of the steps' parts. No rank's wall time
/// differs from rank 0's by more than a step at either end, the pause before the first one, and the
/// share by which clocks run apart.
void hold_rank_times(const CheckedJournal& run, const MeasuredSpan& measured, LineCheck& check) {
  StepSplit mean;
  std::int64_t ranks = 0;
  const auto first = run.first<RankTimeEvent>();
  const double apart_s = seconds_of(2 * measured.longest_ns + measured.pause_ns);
  check.each(run.journal, [&](const RankTimeEvent& time) {
    mean.add(time.split, 1.0 / static_cast<double>(run.ranks()));
    ++ranks;
    check.hold(std::fabs(time.wall_s - first->wall_s) <= apart_s + clock_share * first->wall_s,
               "wall_s {} of other ranks", "{1}", first->wall_s, time.wall_s);
  });
  if (ranks == 0 || ranks != run.ranks()) return;
  // A rank's other time has gaps between steps, and a step's has none.
  const auto alike = [&](double StepSplit::*part) {
    return near(measured.split.*part, mean.*part);
  };
  check.at(first.line);
  check.hold(alike(&StepSplit::compute_s) && alike(&StepSplit::communication_s) &&
                 alike(&StepSplit::bubble_s) && alike(&StepSplit::data_s),
             "in the mean over the ranks {}", "{1}", split_text(measured.split), split_text(mean));
}

/// The means that a `rank_steps` line has of a rank's steps, each times its number of steps, add up
/// to the time that the rank computed. Each mean is rounded to a nanosecond.
void hold_compute_ns(const RankStepsEvent& steps, const std::map<std::int32_t, double>& compute_s,
                     LineCheck& check) {
  const std::uint64_t each = std::max<std::uint64_t>(1, steps.steps_per_value);
  check.equal("values", (steps.steps + each - 1) / each,
              static_cast<std::uint64_t>(steps.compute_ns.size()));
  const auto all = compute_s.find(steps.rank);
  if (all == compute_s.end()) return;
  double sum_s = 0;
  std::uint64_t left = steps.steps;
  for (const std::int64_t mean_ns : steps.compute_ns) {
    const std::uint64_t count = std::min(left, each);
    sum_s += seconds_of(mean_ns) * static_cast<double>(count);
    left -= count;
  }
  const double rounded_s = nanosecond * static_cast<double>(steps.steps);  // each mean, to 1 ns
  check.hold(std::fabs(sum_s - all->second) <= rounded_s + sum_rounding * all->second,
             "{} s of computing in all", "{1} s", all->second, sum_s);
}

/// The steps that each training has done when it ends. A trial is known by its number alone, a
/// fixed model by its group.
using StepsDone = std::map<std::pair<std::int32_t, std::optional<std::uint64_t>>, std::uint64_t>;
StepsDone::key_type training_of(const auto& event) {
  return {event.trial ? 0 : event.group, event.trial};
}

/// Returns the bytes that each rank holds from the end of its first step on, by its plan: weights,
/// gradients and optimizer states. Activations and buffers are left out, since they come and go.
/// Empty where there was no step.
std::map<std::int32_t, std::uint64_t> bytes_of_training(const CheckedJournal& run) {
  constexpr std::uint64_t most = std::uint64_t{1} << 60;  // so that three of them add up
  std::map<std::int32_t, std::uint64_t> bytes;
  if (!run.first<StepEvent>()) return bytes;
  for (const RankPlanEvent* plan : run.journal.all<RankPlanEvent>()) {
    bytes[plan->rank] = std::min(plan->weights_bytes, most) +
                        std::min(plan->gradients_bytes, most) +
                        std::min(plan->optimizer_bytes, most);
  }
  return bytes;
}

/// A checksum names the steps that its training has done and the share of the model that the rank
/// holds. In a search a rank holds its trial's whole model. The ruleset, not this check, judges if
/// ranks with one share agree.
void hold_checksum(const CheckedJournal& run, const ChecksumEvent& event, const StepsDone& done,
                   LineCheck& check) {
  const auto steps = done.find(training_of(event));
  const std::uint64_t none = event.trial ? 0 : run.first_step();
  if (has_all_steps(run)) check.equal("n", steps == done.end() ? none : steps->second, event.n);
  const PlanOutline* plan = run.last_plan();
  if (plan == nullptr) return;
  const std::vector<HeldStage> held = plan->stages_of(event.rank);
  if (run.is_search()) {
    check.equal("share", "", event.share);
  } else if (!held.empty()) {
    check.equal("share", share_text(held, plan->stages.size()), event.share);
  }
}

}  // namespace

/// A `host_load` line names a host of the run, its first rank there and the CPUs that its ranks may
/// use. A `gpu_slowdown` line names a rank with a GPU, and the same GPU as the rank's other lines.
/// Neither was watched for longer than the journal is open.
void check_hosts(const CheckedJournal& run, LineCheck& check) {
  if (run.outline.homes.empty()) return;
  if (run.scale) {
    check.at(run.scale.line);
    check.equal("ranks with a place", run.ranks(),
                static_cast<std::int64_t>(run.outline.homes.size()));
  }
  const std::map<std::string, HostShare> shares = host_shares(run.outline.homes);
  std::map<std::int32_t, std::string> gpus;
  const auto hold_load = [&](const HostLoadEvent& load) {
    const std::string& host = load.host.empty() ? run.outline.homes.front().host : load.host;
    const auto share = shares.find(host);
    check.equal("first rank and CPUs of " + host,
                share == shares.end()
                    ? "a host of the run"
                    : fmt::format("{} and {}", share->second.first_rank, share->second.cpu_count),
                fmt::format("{} and {}", load.first_rank.value_or(0), load.cpus));
    const double before = load.load_before.value_or(0), after = load.load_after.value_or(0);
    check.hold(before >= 0 && after >= 0, "load averages of 0 or more", "{} and {}", before, after);
    hold_watched_time(run, load.seconds, check);
  };
  check.each(run.journal, hold_load, [&](const GpuSlowdownEvent& gpu) {
    const RankHome* home = home_of_rank(run, gpu.rank);
    check.equal("host with a GPU", home != nullptr && home->has_gpu ? home->host : "none",
                gpu.host);
    check.equal("gpu", gpus.emplace(gpu.rank, gpu.gpu).first->second, gpu.gpu);
    hold_watched_time(run, gpu.seconds, check);
    const double thermal_s = gpu.thermal_s.value_or(0), power_s = gpu.power_s.value_or(0);
    check.hold(thermal_s >= 0 && power_s >= 0, "times of 0 s or more", "{} and {} s", thermal_s,
               power_s);
  });
}

/// Each rank tells its place in the plan and the bytes that it will hold. Ranks with the same work
/// hold as much (but for optimizer states), ranks of one device class have one limit, and no rank
/// is planned beyond it.
void check_rank_plans(const CheckedJournal& run, LineCheck& check) {
  if (!run.outline.plan || run.is_search()) return;
  EachRank<RankPlanEvent> each(run, check);
  std::map<std::string, std::string> bytes;
  std::map<std::string, std::uint64_t> limits;
  check.each(run.journal, [&](const RankPlanEvent& event) {
    each.hold(event);
    hold_place_in_plan(run, event, check);
    const std::string work = work_text(*run.outline.plan, event);
    check.equal("bytes", bytes.emplace(work, held_bytes(event)).first->second, held_bytes(event));
    if (!event.limit_bytes) return;
    check.equal("limit_bytes", limits.emplace(event.device_class, *event.limit_bytes).first->second,
                *event.limit_bytes);
    check.hold(event.total_bytes() <= *event.limit_bytes, "at most {} bytes", "{1} bytes",
               *event.limit_bytes, event.total_bytes());
  });
  each.expect_all();
}

/// The parts of a prediction follow from one another: samples per second from the time of a step,
/// and the share of idle time from the seconds that the ranks were predicted to be busy.
void check_predictions(const CheckedJournal& run, LineCheck& check) {
  double busy_s = 0;
  std::int64_t ranks = 0;
  for (const RankPlanEvent* plan : run.journal.all<RankPlanEvent>()) {
    busy_s += plan->busy_s.value_or(0);
    ++ranks;
  }
  check.each(run.journal, [&](const PredictionEvent& event) {
    const double samples =
        run.workload ? static_cast<double>(run.workload->samples_per_step.value_or(0)) : 0;
    check.hold(near(samples, event.samples_per_s * event.step_time_s), "{} samples a step", "{1}",
               samples, event.samples_per_s * event.step_time_s);
    const double idle = 1 - busy_s / (event.step_time_s * static_cast<double>(ranks));
    check.hold(near(idle, event.bubble_rate), "bubble_rate {}", "{1}", idle, event.bubble_rate);
    check.hold(event.pipeline_bubble_rate > -sum_rounding && event.pipeline_bubble_rate < 1,
               "a pipeline_bubble_rate from 0 to 1", "{}", event.pipeline_bubble_rate);
  });
}

/// One step of each training is observed on each rank, its first one, and the first one by each new
/// plan. There are operations exactly where an operator was called.
void check_observations(const CheckedJournal& run, LineCheck& check) {
  EachTraining<ObservedEvent> each(run, check);
  check.each(run.journal, [&](const ObservedEvent& event) {
    const std::size_t plan = event.trial ? 0 : run.plan_number(event.n);
    each.hold(event, plan);
    check.equal("n",
                event.trial ? 0
                : plan == 0 ? run.first_step()
                            : run.later_plans[plan - 1].first_step,
                event.n);
    check.equal("operators called", event.executed != Ops(), event.calls > 0);
  });
  each.expect_all(false);
}

/// After the measured phase every rank of a fixed model tells where its time went, once as sums and
/// once step by step. Only rank 0's wall time can be compared with the step lines exactly, since
/// both come from one clock.
void check_rank_times(const CheckedJournal& run, LineCheck& check) {
  const MeasuredSpan measured = measured_steps_of(run.journal);
  ObservedByPlan observed;
  for (const ObservedEvent* event : run.journal.all<ObservedEvent>()) {
    if (!event->trial) observed.emplace(std::pair(event->rank, run.plan_number(event->n)), event);
  }
  std::map<std::int32_t, double> compute_s;
  EachRank<RankTimeEvent> each_time(run, check);
  EachRank<RankStepsEvent> each_steps(run, check);
  const auto hold_time = [&](const RankTimeEvent& time) {
    each_time.hold(time);
    hold_measured_steps(run, time, measured, check);
    hold_observed_ops(run, time, observed, check);
    compute_s[time.rank] = time.split.compute_s;
    // The first rank's clock is that of the step lines.
    if (time.rank != 0 || run.is_lockstep() || !has_all_steps(run)) return;
    const double wall_s = seconds_of(measured.end_ns - measured.start_ns);
    check.hold(near(wall_s, time.wall_s), "wall_s {}", "{1}", wall_s, time.wall_s);
  };
  check.each(run.journal, hold_time, [&](const RankStepsEvent& steps) {
    each_steps.hold(steps);
    hold_measured_steps(run, steps, measured, check);
    hold_compute_ns(steps, compute_s, check);
  });
  if (has_all_steps(run)) hold_rank_times(run, measured, check);
  if (!measured.first || run.is_search()) return;
  each_time.expect_all();
  each_steps.expect_all();
}

/// A line of the measured peak rates names each kind of product once, in the run's precision.
void hold_peak(const CheckedJournal& run, const PeakEvent& peak, LineCheck& check) {
  check.equal("source", "measured", peak.source);
  const std::set<std::string> products(peak.products.begin(), peak.products.end());
  check.equal("different products", products.size(), peak.products.size());
  if (run.workload) check.equal("precision", run.workload->precision, peak.precision);
  check.hold(!peak.memory_bytes_per_second ||
                 (peak.memory_reason.empty() && *peak.memory_bytes_per_second > 0),
             "a rate of the memory, or why there is none", "{}", peak.memory_reason);
}

/// Every measured product stands once, with a way that some time of a call speaks for.
void hold_products(const ProductsEvent& products, LineCheck& check) {
  check.hold(is_product_choice(products.choice), "ways of products", "{}", products.choice);
  std::set<std::string> shapes;
  for (const MeasuredProduct& product : products.measured) {
    const double taken_s = product.seconds_of(product.way);
    check.hold(shapes.insert(product.shape).second && taken_s > 0 &&
                   products.choice.find(product.shape) != std::string::npos,
               "a product of the choice, once, and the time of its way", "{} by {} in {} s",
               product.shape, product.way, taken_s);
  }
}

/// At its end every rank tells the peak of its memory and the checksum of its parameters; a rank on
/// an emulated device also tells how late it was. The measured peak rates of the machine are held
/// here as well.
void check_rank_ends(const CheckedJournal& run, LineCheck& check) {
  EachRank<MemoryEvent> each_memory(run, check);
  EachRank<PacingEvent> each_pacing(run, check);
  EachTraining<ChecksumEvent> each_checksum(run, check);
  std::map<std::int32_t, std::uint64_t> trained_bytes = bytes_of_training(run);
  StepsDone done;
  for (const auto* step : run.journal.all<StepEvent>()) done[training_of(*step)] = step->n + 1;
  const auto hold_memory = [&](const MemoryEvent& memory) {
    each_memory.hold(memory);
    const std::uint64_t fewest = trained_bytes[memory.rank];
    check.hold(memory.peak_bytes <= most_memory_bytes && memory.peak_bytes >= fewest,
               "{} bytes of weights and their updates, at most {}", "a peak of {2} bytes", fewest,
               most_memory_bytes, memory.peak_bytes);
  };
  const auto hold_pacing = [&](const PacingEvent& pacing) {
    each_pacing.hold(pacing);
    const double asked = run.outline.asked ? run.outline.asked->dilation : 0;
    if (asked > 0) check.equal("dilation", asked, pacing.dilation);
    check.hold(
        pacing.late <= pacing.operations && pacing.dilation > 0 && pacing.worst_lateness_s >= 0,
        "at most {} late", "{1}, by {2} s, {3} times slower", pacing.operations, pacing.late,
        pacing.worst_lateness_s, pacing.dilation);
  };
  const auto hold_fingerprint = [&](const ChecksumEvent& checksum) {
    each_checksum.hold(checksum);
    hold_checksum(run, checksum, done, check);
  };
  const auto hold_substitution = [&](const SubstitutionEvent& event) {
    const double journal_s =
        seconds_of(run.journal.lines.back().t_ns - run.journal.lines.front().t_ns);
    check.hold(event.rank >= 0 && event.rank < run.ranks() && !event.name.empty() &&
                   event.calls > 0 && event.seconds >= 0 && event.steps_s >= 0 &&
                   event.steps_s <= journal_s + shortest_span_s,
               "calls within {} s", "{1} of {2} in {3} s of {4} s", journal_s, event.calls,
               event.name, event.seconds, event.steps_s);
  };
  check.each(
      run.journal, hold_memory, hold_pacing, hold_fingerprint, hold_substitution,
      [&](const PeakEvent& peak) { hold_peak(run, peak, check); },
      [&](const ProductsEvent& products) { hold_products(products, check); });
  each_memory.expect_all();
  each_checksum.expect_all(true);
}

}  // namespace heteroperf
