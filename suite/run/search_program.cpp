#include "suite/run/search_program.hpp"

#include <fmt/format.h>

#include <cmath>
#include <optional>

#include "automl/trial_runner.hpp"
#include "runners/comm/text_exchange.hpp"
#include "suite/run/clock.hpp"
#include "suite/run/group_trainer.hpp"
#include "suite/run/rank_messages.hpp"
#include "suite/run/search_messages_json.hpp"
#include "suite/run/training_program.hpp"

namespace heteroperf {
namespace {

/// How far this group is in its warm-up and its share of the time.
class GroupClock {
 public:
  explicit GroupClock(const MeasureConfig& config) : config_(config) {}

  bool measuring() const { return start_ns_ != 0; }
  void start() { start_ns_ = now_ns(); }
  double elapsed_s() const {
    return measuring() ? static_cast<double>(now_ns() - start_ns_) * 1e-9 : 0.0;
  }
  bool over() const {
    return config_.steps == 0 && measuring() && elapsed_s() >= config_.duration_s;
  }
  double fraction(std::uint64_t steps) const {
    return config_.steps > 0 ? static_cast<double>(steps) / static_cast<double>(config_.steps)
                             : std::min(1.0, elapsed_s() / config_.duration_s);
  }

 private:
  const MeasureConfig& config_;
  std::int64_t start_ns_ = 0;
};

class GroupTrialRunner : public TrialRunner {
 public:
  GroupTrialRunner(RankContext& context, Communicator& group, int number, const Workload& workload)
      : context_(context),
        group_(group),
        number_(number),
        workload_(workload),
        clock_(context.config.measure) {
    enter(Phase::warmup);
  }

  void begin(const Trial& trial) override {
    trial_ = trial;
    context_.log(fmt::format("trial {} of group {}: {} parameters, batch {}, learning rate {:.4g}",
                             trial.id, number_, trial.graph.parameter_count(), trial.hyper.batch,
                             trial.hyper.learning_rate));
    trainer_.emplace(context_, group_, number_, trial.id, spec_of(trial));
  }

  TrialReport advance(std::uint64_t until_step) override {
    TrialReport report;
    report.id = trial_.id;
    while (trainer_->steps_done() < until_step && may_go_on()) {
      const StepReport step = trainer_->step();
      ++steps_;
      show(step);
      if (!std::isfinite(step.loss) || !std::isfinite(step.gradient_norm)) {
        report.health = TrialReport::Health::diverged;
        report.reason = fmt::format("the loss became {} at step {}", step.loss, step.step);
        break;
      }
    }
    report.steps = trainer_->steps_done();
    if (report.health == TrialReport::Health::fine) evaluate(report);
    return report;
  }

  void end() override {
    if (trainer_) {
      trainer_->post_checksums();
      peak_bytes_ = std::max(peak_bytes_, trainer_->memory().peak_bytes);
    }
    trainer_.reset();
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
    spec.recipe.total_steps = last_milestone();
    spec.plan =
        even_plan(trial.graph, {.data = group_.size(),
                                .micro_batch = trial.hyper.batch,
                                .micro_batches = static_cast<int>(workload_.micro_batches)});
    spec.seed = trial.seed;
    return spec;
  }

  std::uint64_t last_milestone() const {
    const AutomlConfig& automl = context_.config.automl;
    return Rungs({automl.first_rung_steps, automl.reduction, automl.rungs})
        .milestone(automl.rungs - 1);
  }

  bool may_go_on() {
    Directive mine = Directive::go_on;
    const bool stop = stop_wanted(context_);
    if (is_leader()) {
      if (!clock_.measuring() && steps_ >= context_.config.measure.warmup_steps) {
        clock_.start();
        enter(Phase::measure);
      }
      mine = stop ? Directive::interrupt : clock_.over() ? Directive::end : Directive::go_on;
    }
    const Directive agreed = agree(group_, mine);
    interrupted_ = agreed == Directive::interrupt;
    over_ = agreed != Directive::go_on;
    return !over_;
  }

  void evaluate(TrialReport& report) {
    const auto go_on = [this] {
      const Directive mine = stop_wanted(context_) ? Directive::interrupt : Directive::go_on;
      return agree(group_, mine) == Directive::go_on;
    };
    const auto result = trainer_->evaluate(context_.config.automl.evaluation_samples, go_on);
    if (!result) {
      interrupted_ = over_ = true;
      report.health = TrialReport::Health::failed;  // all its steps are done, its quality unknown
      report.reason = evaluation_interrupted;
      return;
    }
    report.quality = result->accuracy;
    report.loss = result->loss;
  }

  bool is_leader() const { return group_.rank() == RankId(0); }
  void enter(Phase phase) {
    if (is_leader()) context_.post(PhaseEvent{phase, number_});
  }

  void show(const StepReport& step) {
    if (context_.progress == nullptr) return;
    images_ += static_cast<double>(step.samples);
    if (first_ns_ == 0) first_ns_ = step.t_start_ns;
    const double seconds = static_cast<double>(step.t_end_ns - first_ns_) * 1e-9;
    context_.show({"search", clock_.fraction(steps_), seconds, images_ / seconds,
                   workload_.unit + " (group 0)", step.loss, fmt::format("trial {}", trial_.id)});
  }

  RankContext& context_;
  Communicator& group_;
  int number_;
  const Workload& workload_;
  GroupClock clock_;
  Trial trial_;
  std::optional<GroupTrainer> trainer_;
  std::uint64_t steps_ = 0, peak_bytes_ = 0;
  double images_ = 0;
  std::int64_t first_ns_ = 0;
  bool over_ = false, interrupted_ = false;
};

/// The group's leader asks over the control channel, every rank of the group hears the answer.
class GroupLink : public MasterLink {
 public:
  GroupLink(RankContext& context, Communicator& group, GroupId number)
      : context_(context), group_(group), number_(number) {}

  Assignment request_trial() override { return assignment_from_text(ask(TrialRequest{number_})); }
  Decision report_milestone(const TrialReport& report) override {
    return decision_from_text(ask(MilestoneReport{number_, report}));
  }
  void leave() override { tell({number_, "", 0}); }
  /// A world that is broken already has no use for the news.
  void lose(const std::string& reason, std::uint64_t steps_done) noexcept override {
    if (context_.control().failure()) return;
    try {
      tell({number_, reason, steps_done});
    } catch (const std::exception&) {  // the error that lost the group is on its way up
    }
  }

 private:
  bool is_leader() const { return group_.rank() == RankId(0); }
  std::string ask(const SearchQuestion& question) {
    return share_text(group_, is_leader() ? ask_master(context_.control(), to_text(question)) : "");
  }
  void tell(const GroupEnd& end) {
    if (is_leader()) tell_master(context_.control(), to_text(end));
  }

  RankContext& context_;
  Communicator& group_;
  GroupId number_;
};

}  // namespace

int search_groups(const RunConfig& config, int ranks) {
  const int size = config.automl.group_ranks;
  if (ranks % size != 0) {
    throw UserError(fmt::format("{} ranks do not divide into groups of {}", ranks, size),
                    "automl.group_ranks must divide the rank count");
  }
  return ranks / size;
}

ProgramEnd run_search(RankContext& context, const Workload& workload, SearchService* service) {
  const int rank = context.all_ranks().rank().value();
  const GroupId number(rank / context.config.automl.group_ranks);
  const auto group = context.all_ranks().split(number.value(), rank);
  GroupTrialRunner runner(context, *group, number.value(), workload);
  GroupLink master(context, *group, number);
  run_trials(master, runner);
  if (runner.interrupted() && service != nullptr) service->close("interrupted");
  context.post(MemoryEvent{rank, runner.peak_bytes()});
  ProgramEnd end;
  end.interrupted = runner.interrupted();
  return end;
}

}  // namespace heteroperf
