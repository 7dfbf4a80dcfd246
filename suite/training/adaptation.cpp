// Adaptation at run time: a training whose devices are not as fast as planned gets another plan.
//
// A *look* comes after every N measured steps. Each rank tells the median of its step times and of
// its computing times, so a look sees a change of speed wholly or not at all, and no later than 2N
// steps after it. The first rank compares the computing times with those planned, class by class,
// by the same code that `plan --learn` uses on a finished run. What was planned knows all that
// earlier looks have learned.
//
// Most looks end there. Let every class take between a and b times as long as planned, links
// exactly 1. The plan in force was the best, so any other took at least as long with the old times;
// with the new ones it takes at least a times that, while the plan in force takes at most b times
// as long. No plan can therefore gain more than b/a − 1, the *deviation*, by what has changed; up
// to the threshold nothing is searched, and the training loses nothing.
//
// Beyond it, the first rank searches with the learned rates while the others wait, for two seconds
// at most. The new plan must keep all ranks and the samples of a step. If it gains more than the
// threshold over the plan in force, both predicted with what was learned, and every rank can hold
// its state of both plans while it moves, its text goes to all ranks and they change to it.
#include "suite/training/adaptation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "metrics/base/clock.hpp"
#include "metrics/base/error.hpp"
#include "metrics/statistics.hpp"
#include "runners/plan/plan_json.hpp"
#include "suite/planning/border_bytes.hpp"
#include "suite/planning/learned_rates.hpp"

namespace heteroperf {
namespace {

/// The ranks wait for a search no longer than about this.
constexpr double search_limit_s = 2;

double deviation_of(const std::vector<DeviceTime>& classes) {
  double least = 1, most = 1;
  for (const DeviceTime& time : classes) {
    least = std::min(least, time.measured_s / time.predicted_s);
    most = std::max(most, time.measured_s / time.predicted_s);
  }
  return most / least - 1;
}

Plan without_rates(Plan plan) {
  plan.efficiency = {};
  return plan;
}

}  // namespace

PlanJudge::PlanJudge(const Workload& workload, const ChosenPlan& start, double threshold)
    : workload_(workload),
      plan_(without_rates(start.plan)),
      known_(known_better(start.cluster.value(), start.plan)),
      learned_(start.plan.efficiency),
      threshold_(threshold),
      emulated_(start.emulated) {
  plan_anew();
}

TrainingTask PlanJudge::task() const {
  return {workload_.graph, workload_.precision, workload_.recipe.kind};
}

/// Most looks find the plan and the machine as they were, and need no prediction of their own.
void PlanJudge::plan_anew() {
  const ReadyPlan ready(task(), plan_, known_);
  planned_ = {ready.predicted().step_time_s, ready.busy_s(), computing_s(task(), plan_, known_),
              ready.memory};
}

AdaptEvent PlanJudge::look(std::uint64_t steps_done, const std::vector<MeasuredSteps>& measured) {
  AdaptEvent event;
  event.n = steps_done;
  event.threshold = threshold_;
  event.measured_step_s = measured.front().step_s;
  event.planned_step_s = planned_.step_s;
  std::vector<std::optional<double>> computing;
  for (std::size_t rank = 0; rank < measured.size(); ++rank) {
    // An emulated device's clock has the sums of tensor-parallel ranks in the passes.
    const double sums_s = emulated_ ? planned_.with_sums_s[rank] - planned_.computing_s[rank] : 0;
    const double computing_s = measured[rank].computing_s - sums_s;
    computing.emplace_back(computing_s);
    event.ranks.push_back(
        {static_cast<std::int32_t>(rank), planned_.computing_s[rank], computing_s});
  }
  try {
    const LearnedRates lesson =
        learn_rates(known_, workload_.precision, planned_.computing_s, computing,
                    fmt::format("the steps up to {}", steps_done));
    for (const DeviceTime& time : lesson.classes) {
      event.classes.push_back({time.device_class, time.ranks, time.predicted_s, time.measured_s});
    }
    event.deviation = deviation_of(lesson.classes);
    if (event.deviation > threshold_) search(lesson.matrix, event);
  } catch (const UserError& error) {
    // Times that cannot be those of this machine, or a machine on which nothing fits any more.
    event.decision = AdaptDecision::no_gain;
    event.reason = error.problems().front().text();
  }
  return event;
}

void PlanJudge::search(const EfficiencyMatrix& lesson, AdaptEvent& event) {
  const Stopwatch stopwatch;
  apply(lesson, known_);
  learned_.merge(lesson);
  event.decision = AdaptDecision::no_gain;
  plan_anew();
  event.kept_step_s = planned_.step_s;
  const SearchedPlan found =
      search_plan(workload_, known_, plan_.samples_per_step(), search_limit_s);
  event.candidates = found.candidates;
  event.search_s = stopwatch.elapsed_s();
  if (!found.best) {
    event.reason = "every plan that was found leaves devices idle";
    return;
  }
  const double new_step_s = found.best->predicted().step_time_s;
  const double gain = *event.kept_step_s / new_step_s - 1;
  if (gain > threshold_) event.reason = too_large_to_move(found.best->memory);
  if (!event.reason.empty()) return;
  event.new_step_s = new_step_s;
  event.gain = gain;
  if (!(gain > threshold_)) return;
  Plan plan = found.best->plan;
  // It is of the same workload, on the same devices of the whole cluster.
  plan.workload = plan_.workload;
  plan.cluster = plan_.cluster;
  plan.devices = plan_.devices;
  // Replicas on unlike devices need one update for all; see choose_plan().
  plan.zero_stage = std::max(plan.zero_stage, plan_.zero_stage);
  plan_ = plan;
  plan_anew();
  plan.efficiency = learned_;
  event.decision = AdaptDecision::new_plan;
  event.plan.text = plan_text(plan);
  event.summary = summary_text(plan);
}

std::string PlanJudge::too_large_to_move(const std::vector<MemoryLedger>& next) const {
  for (std::size_t rank = 0; rank < next.size(); ++rank) {
    const MemoryLedger& now = planned_.memory[rank];
    const Bytes both = now.weights + now.gradients + now.optimizer + next[rank].total();
    const Bytes limit = class_of(known_, RankId(static_cast<std::int32_t>(rank))).memory;
    if (limit == Bytes(0) || both <= limit) continue;
    return fmt::format("rank {} would hold both plans' weights while they move: {} of {}", rank,
                       rounded_byte_size(both), rounded_byte_size(limit));
  }
  return {};
}

Adaptation::Adaptation(RankContext& context, const Workload& workload, const ChosenPlan& start)
    : context_(context), workload_(workload), start_(start) {
  start.predicted();  // which tells what the cluster lacks
  if (context.is_first()) judge_.emplace(workload, start, context.config.adapt.replan_threshold);
}

void Adaptation::add(const StepReport& report, const std::optional<PacingReport>& pacing) {
  const double wall_s = static_cast<double>(report.t_end_ns - report.t_start_ns) * 1e-9;
  step_s_.push_back(pacing ? wall_s / pacing->dilation : wall_s);
  computing_s_.push_back(pacing ? pacing->computing_s : report.split.compute_s);
}

std::optional<ChosenPlan> Adaptation::look(std::uint64_t steps_done) {
  Communicator& all = context_.all_ranks();
  const std::array<double, 2> mine{upper_median(step_s_), upper_median(computing_s_)};
  step_s_.clear();
  computing_s_.clear();
  const std::size_t ranks = all.size();
  std::vector<double> told(mine.size() * ranks);
  all.all_gather(std::span<const double>(mine), std::span<double>(told));
  std::string text;
  if (judge_) {
    std::vector<MeasuredSteps> measured;
    for (std::size_t i = 0; i < told.size(); i += 2) measured.push_back({told[i], told[i + 1]});
    event_ = judge_->look(steps_done, measured);
    text = event_.plan.text;
    if (text.empty()) context_.post(event_);
  }
  text = share_text(all, text);
  if (text.empty()) return std::nullopt;
  ChosenPlan chosen = complete_plan(parse_plan(text, "the new plan"), workload_, start_.cluster);
  chosen.devices = start_.devices;
  if (judge_) event_.borders = planned_borders(workload_.graph, chosen, workload_.precision);
  slow_down(chosen, workload_, context_.config.pace.slow);
  return chosen;
}

void Adaptation::note_change(const MoveReport& moved, double seconds) {
  if (!judge_) return;
  event_.moved_bytes = moved.bytes;
  event_.move_s = seconds;
  context_.post(event_);
}

}  // namespace heteroperf
