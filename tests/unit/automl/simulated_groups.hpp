#pragma once

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "automl/graph_rebuild.hpp"
#include "automl/trial_master.hpp"
#include "automl/trial_runner.hpp"
#include "metrics/base/random.hpp"
#include "tests/unit/automl/sample_graphs.hpp"

namespace heteroperf {

/// What a trial yields: a pure function of the trial and its steps. One in 13 diverges.
inline TrialReport simulated_report(const Trial& trial, std::uint64_t steps) {
  TrialReport report;
  report.id = trial.id;
  report.steps = steps;
  const double talent = to_unit(random_bits(trial.seed, 1));
  report.quality = talent * (1.0 - std::exp(-static_cast<double>(steps) / 30.0));
  report.loss = 2.0 - report.quality;
  if (random_bits(trial.seed, 2) % 13 == 0) {
    report.health = TrialReport::Health::diverged;
    report.reason = "loss is inf";
    report.steps = steps / 2;
    report.loss = std::numeric_limits<double>::infinity();
  }
  return report;
}

inline Search tiny_search(std::uint64_t seed) {
  SearchOptions options;
  options.seed = seed;
  options.space.max_ops_ratio = 50.0;
  options.space.max_layers = 12;
  options.tpe.candidates = 4;
  options.tpe.history_limit = 64;
  return Search(tiny_classifier(), options);
}

/// Everything the master said, in its order.
class MasterLog {
 public:
  MasterObserver observer() {
    return {[this](GroupId group, const Trial& trial) {
              add(fmt::format("{} begins {} {} from {} batch {} kernel {} lr {} seed {} until {}",
                              group.value(), trial.id, architecture_of(trial.graph).hash(),
                              trial.parent.value_or(99999), trial.hyper.batch, trial.hyper.kernel,
                              trial.hyper.learning_rate, trial.seed, trial.steps));
            },
            [this](GroupId group, const Trial& trial, const TrialOutcome& outcome) {
              add(fmt::format("{} ends {} {} {} {} {} {}", group.value(), trial.id,
                              to_string(outcome.state), outcome.quality, outcome.steps,
                              outcome.ops.to_string(), outcome.milestones.size()));
              outcomes.push_back(outcome);
              history.push_back({trial, outcome});
            }};
  }

  std::vector<std::string> lines;
  std::vector<TrialOutcome> outcomes;
  std::vector<HistoryEntry> history;

 private:
  void add(std::string line) { lines.push_back(std::move(line)); }
};

/// A line to a master in this process.
class DirectLink : public MasterLink {
 public:
  DirectLink(TrialMaster& master, GroupId group) : master_(master), group_(group) {}

  Assignment request_trial() override {
    return reply_to<Assignment>(
        [&](auto reply) { master_.request_trial(group_, std::move(reply)); });
  }
  Decision report_milestone(const TrialReport& report) override {
    return reply_to<Decision>(
        [&](auto reply) { master_.report_milestone(group_, report, std::move(reply)); });
  }
  void leave() override { master_.group_left(group_); }
  void lose(const std::string& reason, std::uint64_t steps_done) noexcept override {
    master_.group_lost(group_, reason, steps_done);
  }

 private:
  /// Waits for a reply; an empty one when the master drops the callback of a lost group.
  template <class Reply, class Ask>
  static Reply reply_to(Ask ask) {
    auto promise = std::make_shared<std::promise<Reply>>();
    std::future<Reply> reply = promise->get_future();
    ask([owned = std::move(promise)](Reply value) { owned->set_value(std::move(value)); });
    try {
      return reply.get();
    } catch (const std::future_error&) {
      return {};
    }
  }

  TrialMaster& master_;
  GroupId group_;
};

/// Trains nothing, sleeps a random while, survives everything.
class SleepyRunner : public TrialRunner {
 public:
  explicit SleepyRunner(std::uint64_t seed) : random_(seed) {}
  void begin(const Trial& trial) override {
    trial_ = trial;
    steps_ = 0;
  }
  TrialReport advance(std::uint64_t until_step) override {
    std::this_thread::sleep_for(std::chrono::microseconds(random_.below(300)));
    const TrialReport report = simulated_report(trial_, until_step);
    steps_ = report.steps;
    return report;
  }
  void end() override { steps_ = 0; }
  std::uint64_t steps_done() const override { return steps_; }
  bool survives(const std::exception&) const override { return true; }
  bool over() const override { return false; }

 protected:
  Trial trial_;
  std::uint64_t steps_ = 0;
  RandomStream random_;
};

inline void run_trials(TrialMaster& master, GroupId group, TrialRunner& runner) {
  DirectLink link(master, group);
  run_trials(link, runner);
}

/// Runs one thread per group until the master has no more trials.
inline void run_groups(TrialMaster& master, std::size_t groups, std::uint64_t timing_seed) {
  std::vector<std::thread> threads;
  for (std::size_t g = 0; g < groups; ++g) {
    threads.emplace_back([&master, g, timing_seed] {
      SleepyRunner runner(random_bits(timing_seed, g));
      run_trials(master, GroupId(static_cast<std::int32_t>(g)), runner);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

/// Many groups in one thread: what is ready to be said to the master is said in a drawn order.
class GroupSimulator {
 public:
  GroupSimulator(TrialMaster& master, std::size_t groups) : master_(master), current_(groups) {
    for (std::size_t g = 0; g < groups; ++g) ready_.push_back({g, false, 0});
  }

  /// Says one thing; false when no group has anything to say.
  bool step(RandomStream& random) {
    if (ready_.empty()) return false;
    std::swap(ready_[random.below(ready_.size())], ready_.back());
    const Ready next = ready_.back();
    ready_.pop_back();
    ++said;
    next.reports ? report(next) : request(next.group);
    return true;
  }

  std::size_t said = 0;
  std::size_t finished = 0;  ///< groups that were told that there is no more

 private:
  struct Ready {
    std::size_t group;
    bool reports;
    std::uint64_t steps;
  };

  static GroupId id(std::size_t g) { return GroupId(static_cast<std::int32_t>(g)); }

  void request(std::size_t g) {
    master_.request_trial(id(g), [this, g](Assignment assignment) {
      if (!assignment.trial) {
        ++finished;
        return;
      }
      current_[g] = *assignment.trial;
      ready_.push_back({g, true, current_[g].steps});
    });
  }

  void report(const Ready& next) {
    const std::size_t g = next.group;
    master_.report_milestone(
        id(g), simulated_report(current_[g], next.steps), [this, g](Decision decision) {
          ready_.push_back({g, decision.until_step.has_value(), decision.until_step.value_or(0)});
        });
  }

  TrialMaster& master_;
  std::vector<Trial> current_;
  std::vector<Ready> ready_;
};

}  // namespace heteroperf
