// One rank's part in an architecture search. Ranks form groups of `automl.group_ranks`; a group
// trains one *trial* (an architecture with its hyper-parameters) at a time, data-parallel, and asks
// the trial master on rank 0 what comes next. A trial is evaluated at *milestones*; the master then
// lets it go on or ends it. The loop itself is automl's run_trials(); this file supplies how a
// group trains (GroupTrialRunner) and how it asks (GroupLink).
//
// Only a group's leader, its rank 0, looks at clocks and talks to the master. Each decision is then
// broadcast in the group, because all its ranks must enter the same collectives. After the search
// the group with the best trial of all evaluates it once more, on samples that did not choose it.
#include "suite/search/search_service.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "automl/trial_json.hpp"
#include "automl/trial_runner.hpp"
#include "metrics/base/clock.hpp"
#include "metrics/score.hpp"
#include "runners/comm/communicator.hpp"
#include "runners/plan/even_plan.hpp"
#include "suite/training/group_trainer.hpp"
#include "suite/training/measure_phases.hpp"
#include "suite/training/product_ways.hpp"

namespace heteroperf {
namespace {

/// Trains the trials of one group. All calls are collective over the group.
class GroupTrialRunner : public TrialRunner {
 public:
  GroupTrialRunner(RankContext& context, Communicator& group, int number, const Workload& workload)
      : context_(context),
        group_(group),
        number_(number),
        workload_(workload),
        phases_(context.config.measure, context.config.measure.warmup_steps, 0,
                {now_ns, [this] { return common_end_has_come(); }}) {
    enter(Phase::warmup);
  }

  void begin(const Trial& trial) override {
    trial_ = trial;
    score_ = {};
    context_.log(fmt::format("trial {} of group {}: {} parameters, batch {}, learning rate {:.4g}",
                             trial.id, number_, trial.graph.parameter_count(), trial.hyper.batch,
                             trial.hyper.learning_rate));
    trainer_ = std::make_unique<GroupTrainer>(context_, group_, number_, trial.id, spec_of(trial));
  }

  TrialReport advance(std::uint64_t until_step) override {
    TrialReport report;
    report.id = trial_.id;
    score_ = {};
    while (trainer_->steps_done() < until_step && may_go_on()) {
      const StepReport step = trainer_->step();
      // The step budget of a group counts the steps of all its trials.
      if (++steps_ == context_.config.measure.steps) finish();
      show(step);
      if (!std::isfinite(step.loss) || !std::isfinite(step.gradient_norm)) {
        // A diverged trial is a result of the search, not a failure of the run.
        report.health = TrialReport::Health::diverged;
        report.reason = fmt::format("the loss became {} at step {}", step.loss, step.step);
        break;
      }
    }
    report.steps = trainer_->steps_done();
    if (report.health == TrialReport::Health::fine) evaluate(report);
    return report;
  }

  /// The model of the group's best trial so far stays for the final evaluation. Whatever trained
  /// longest is best, so a completed trial stays before all others.
  void end() override {
    if (!trainer_) return;
    trainer_->post_checksums();
    peak_bytes_ = std::max(peak_bytes_, trainer_->session().memory().peak_bytes + kept_bytes());
    if (better(score_, best_score_)) {
      best_ = std::move(trainer_);
      best_->session().rest();
      best_score_ = score_;
    }
    trainer_.reset();
  }

  /// From here on the group trains no more, whatever it still evaluates.
  void finish() {
    if (!finished_) enter(Phase::finish);
    finished_ = true;
  }

  const Score& best_score() const { return best_score_; }
  /// Evaluates the best trial, which is this group's: the run's quality and score go by it.
  void evaluate_best(const EvaluationExtent& extent) {
    if (is_leader()) context_.post(PhaseEvent{Phase::evaluate, std::nullopt});
    best_->evaluate(extent);
  }

  std::uint64_t steps_done() const override { return trainer_ ? trainer_->steps_done() : 0; }
  /// A model that the engine refuses fails on every rank of the group alike; so does any error of a
  /// group of one. After any other, the peers wait inside a collective.
  bool survives(const std::exception& error) const override {
    context_.log(fmt::format("trial {}: {}", trial_.id, error.what()));
    if (dynamic_cast<const PeerError*>(&error) != nullptr) return false;
    return group_.size() == 1 || dynamic_cast<const UserError*>(&error) != nullptr;
  }
  bool over() const override { return over_; }
  bool interrupted() const { return interrupted_; }
  std::uint64_t peak_bytes() const { return peak_bytes_; }

 private:
  TrainingSpec spec_of(const Trial& trial) const {
    TrainingSpec spec = training_spec(context_, workload_);
    spec.graph = trial.graph;
    spec.recipe.learning_rate = trial.hyper.learning_rate;
    // Every trial decays as if it went to the last rung, so that equal steps are comparable.
    spec.recipe.total_steps = last_milestone(context_.config.automl);
    spec.use_plan(
        even_plan(trial.graph, {.data = group_.size(),
                                .micro_batch = trial.hyper.batch,
                                .micro_batches = static_cast<int>(workload_.micro_batches)}));
    spec.seed = trial.seed;
    return spec;
  }

  bool may_go_on() {
    const Directive agreed = agree(context_, group_, [this] {
      const Directive directive = phases_.next(steps_);
      if (directive != Directive::next_phase) return directive;
      enter(Phase::measure);  // before rank 0 is asked when it ends
      return phases_.next(steps_);
    });
    interrupted_ = agreed == Directive::interrupt;
    over_ = agreed != Directive::go_on;
    if (over_) finish();
    return !over_;
  }

  /// A search by time ends at one moment in all groups, which rank 0 tells once the last of them
  /// measures: whoever stopped earlier would be idle in the others' time. Rank 0 is asked before
  /// each step until the end is known. Clocks of two hosts drift apart by milliseconds in minutes,
  /// so rank 0 has the last word on whether it has come.
  bool common_end_has_come() {
    ControlChannel& control = context_.control();
    if (!end_ns_) {
      const auto text = ask_master(control, to_text({GroupId(number_), std::nullopt, true}));
      if (!text.empty()) end_ns_ = std::stoll(text);
    }
    return end_ns_ && now_ns() + context_.clock_offset_ns >= *end_ns_ &&
           ask_clock(control) >= *end_ns_;
  }

  void evaluate(TrialReport& report) {
    const std::uint64_t samples = context_.config.automl.evaluation_samples;
    const auto result = trainer_->evaluate({.fewest = samples, .most = samples});
    if (!result) {
      interrupted_ = over_ = true;
      report.health = TrialReport::Health::truncated;
      report.reason = "interrupted during its evaluation";
      return;
    }
    report.quality = result->accuracy;
    report.loss = result->loss;
    score_ = {std::isfinite(report.quality), report.steps, report.quality, report.loss};
  }

  /// The best trial's bytes, where the peak does not count them: a GPU's counts all that it holds.
  std::uint64_t kept_bytes() const {
    return best_ && !context_.gpu() ? best_->session().memory().current_bytes : 0;
  }

  bool is_leader() const { return group_.rank() == RankId(0); }
  void enter(Phase phase) {
    if (is_leader()) context_.post(PhaseEvent{phase, number_});
  }

  void show(const StepReport& step) {
    if (context_.first.progress == nullptr) return;
    images_ += static_cast<double>(step.samples);
    if (first_ns_ == 0) first_ns_ = step.t_start_ns;
    const double seconds = static_cast<double>(step.t_end_ns - first_ns_) * 1e-9;
    // The phases of a search share one line, which tells nothing of a warm-up whose end is not
    // near.
    const bool is_told = phases_.measuring() || context_.config.measure.steps > 0;
    context_.show({"search", is_told ? phases_.fraction(steps_) : 0, seconds, images_ / seconds,
                   workload_.unit + " (group 0)", step.loss, fmt::format("trial {}", trial_.id)});
  }

  RankContext& context_;
  Communicator& group_;
  int number_;
  const Workload& workload_;
  MeasurePhases phases_;                // asked on the leader
  std::optional<std::int64_t> end_ns_;  // of all groups, on rank 0's clock
  Trial trial_;
  Score score_, best_score_;  // the running trial's, as last evaluated, and best_'s
  std::unique_ptr<GroupTrainer> trainer_, best_;
  std::uint64_t steps_ = 0, peak_bytes_ = 0;
  double images_ = 0;
  std::int64_t first_ns_ = 0;
  bool over_ = false, finished_ = false, interrupted_ = false;
};

/// The group's leader asks over the control channel, every rank of the group hears the answer.
class GroupLink : public MasterLink {
 public:
  GroupLink(RankContext& context, Communicator& group, GroupId number)
      : context_(context), group_(group), number_(number) {}

  Assignment request_trial() override {
    return message_from_json<Assignment>(ask({number_}), "assignment");
  }
  Decision report_milestone(const TrialReport& report) override {
    return message_from_json<Decision>(ask({number_, report}), "decision");
  }
  void leave() override { tell("", 0); }
  /// A world that is broken already has no use for the news.
  void lose(const std::string& reason, std::uint64_t steps_done) noexcept override {
    if (context_.control().failure()) return;
    try {
      tell(reason, steps_done);
    } catch (const std::exception&) {  // the error that lost the group is on its way up
    }
  }

 private:
  bool is_leader() const { return group_.rank() == RankId(0); }
  nlohmann::ordered_json ask(const SearchQuestion& question) {
    return nlohmann::ordered_json::parse(
        share_text(group_, is_leader() ? ask_master(context_.control(), to_text(question)) : ""));
  }
  void tell(const std::string& lost_reason, std::uint64_t steps_done) {
    if (!is_leader()) return;
    const std::pair end(lost_reason, steps_done);
    tell_master(context_.control(), to_text({number_, std::nullopt, false, end}));
  }

  RankContext& context_;
  Communicator& group_;
  GroupId number_;
};

/// The rank whose group has the best trial of all, the lowest of equal ones; nothing where none can
/// be used, or a group was interrupted. Collective.
std::optional<int> rank_with_best(RankContext& context, const GroupTrialRunner& runner) {
  constexpr std::size_t width = 5;
  const Score& score = runner.best_score();
  // The fields travel as doubles in one all-gather: usable, steps, quality, loss, interrupted.
  const std::array<double, width> fields{score.usable ? 1.0 : 0.0, static_cast<double>(score.steps),
                                         score.quality, score.loss,
                                         runner.interrupted() ? 1.0 : 0.0};
  std::vector<double> all(width * static_cast<std::size_t>(context.all_ranks().size()));
  context.all_ranks().all_gather(std::span<const double>(fields), std::span<double>(all));
  Score best;
  std::optional<int> best_rank;
  for (std::size_t i = 0; i < all.size(); i += width) {
    // Every rank reads the same values, so all skip the evaluation together.
    if (all[i + 4] > 0) return std::nullopt;
    const Score theirs{all[i] > 0, static_cast<std::uint64_t>(all[i + 1]), all[i + 2], all[i + 3]};
    if (!better(theirs, best)) continue;
    best = theirs;
    best_rank = static_cast<int>(i / width);
  }
  return best_rank;
}

}  // namespace

std::uint64_t last_milestone(const AutomlConfig& automl) {
  return Rungs({automl.first_rung_steps, automl.reduction, automl.rungs})
      .milestone(automl.rungs - 1);
}

int search_groups(const RunConfig& config, int ranks) {
  const int size = config.automl.group_ranks;
  if (ranks % size != 0) {
    throw UserError(fmt::format("{} ranks do not divide into groups of {}", ranks, size),
                    "automl.group_ranks must divide the rank count");
  }
  return ranks / size;
}

TrainingSpec first_trial_spec(const RankContext& context, const Workload& workload) {
  TrainingSpec spec = training_spec(context, workload);
  spec.use_plan(
      even_plan(workload.graph, {.data = context.config.automl.group_ranks,
                                 .micro_batch = workload.micro_batch,
                                 .micro_batches = static_cast<int>(workload.micro_batches)}));
  return spec;
}

void run_search(RankContext& context, const Workload& workload, SearchService* service) {
  const int rank = context.all_ranks().rank().value();
  const GroupId number(rank / context.config.automl.group_ranks);
  const auto group = context.all_ranks().split(number.value(), rank);
  settle_products(context, first_trial_spec(context, workload), group->rank());
  GroupTrialRunner runner(context, *group, number.value(), workload);
  GroupLink master(context, *group, number);
  run_trials(master, runner);
  runner.finish();
  if (runner.interrupted() && service != nullptr) service->close("interrupted");
  const std::optional<int> best = rank_with_best(context, runner);
  if (service != nullptr) service->record_statistics();  // no group asks any more
  if (best) {
    const EvaluationExtent extent = final_extent(context.config, workload, nullptr);
    context.show(
        {.phase = to_string(Phase::evaluate), .note = "the best trial, " + samples_text(extent)});
    if (*best / context.config.automl.group_ranks == number.value()) runner.evaluate_best(extent);
  }
  context.post(MemoryEvent{rank, runner.peak_bytes()});
}

}  // namespace heteroperf
