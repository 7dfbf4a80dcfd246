#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>

#include "automl/trial_master.hpp"
#include "metrics/base/error.hpp"
#include "tests/unit/automl/simulated_groups.hpp"

namespace heteroperf {
namespace {

MasterOptions fault_options(MasterClock clock, std::size_t groups, std::uint64_t steps) {
  MasterOptions options;
  options.clock = clock;
  options.group_ranks.assign(groups, 1);
  options.steps_per_group = steps;
  options.rungs = {10, 3, 3};
  return options;
}

/// Throws in a chosen place of every n-th trial.
class BreakingRunner : public SleepyRunner {
 public:
  enum class Place { begin, advance };
  BreakingRunner(Place place, int every) : SleepyRunner(1), place_(place), every_(every) {}

  void begin(const Trial& trial) override {
    ++trials;
    SleepyRunner::begin(trial);
    maybe_throw(Place::begin);
  }
  TrialReport advance(std::uint64_t until_step) override {
    maybe_throw(Place::advance);
    return SleepyRunner::advance(until_step);
  }
  void end() override { ++ends; }

  int trials = 0, ends = 0;

 private:
  void maybe_throw(Place place) const {
    if (place == place_ && trials % every_ == 0) throw std::runtime_error("out of memory");
  }
  Place place_;
  int every_;
};

TEST(Faults, AnExceptionOfTheRunnerIsARecordedOutcome) {
  for (auto place : {BreakingRunner::Place::begin, BreakingRunner::Place::advance}) {
    MasterLog log;
    TrialMaster master(tiny_search(1), fault_options(MasterClock::counted_operations, 1, 600),
                       log.observer());
    BreakingRunner runner(place, 3);
    run_trials(master, GroupId(0), runner);
    int failed = 0;
    for (const TrialOutcome& outcome : log.outcomes) {
      if (outcome.state != TrialState::failed) continue;
      ++failed;
      EXPECT_EQ(outcome.reason, "out of memory");
    }
    EXPECT_EQ(failed, runner.trials / 3);
    EXPECT_GT(failed, 2);
    EXPECT_EQ(runner.ends, runner.trials);
  }
}

TEST(Faults, AnObserverThatThrowsKeepsNoOtherGroupWaiting) {
  MasterObserver observer;
  int trials = 0;
  observer.on_trial = [&trials](GroupId, const Trial&) {
    if (++trials == 1) throw std::runtime_error("no space left");
  };
  TrialMaster master(tiny_search(1), fault_options(MasterClock::wall, 2, 600), observer);
  EXPECT_THROW(master.request_trial(GroupId(0), [](const Assignment&) {}), std::runtime_error);
  bool answered = false;
  master.request_trial(GroupId(1), [&answered](const Assignment& assignment) {
    answered = assignment.trial.has_value();
  });
  EXPECT_TRUE(answered);
}

TEST(Faults, AFailedTrialKeepsTheStepsItWasTrained) {
  /// Breaks four steps after its first milestone.
  class Late : public SleepyRunner {
   public:
    using SleepyRunner::SleepyRunner;
    TrialReport advance(std::uint64_t until_step) override {
      if (steps_ == 0) return SleepyRunner::advance(until_step);
      steps_ += 4;
      throw std::runtime_error("late");
    }
  };
  MasterLog log;
  TrialMaster master(tiny_search(1), fault_options(MasterClock::counted_operations, 1, 600),
                     log.observer());
  Late runner(1);
  run_trials(master, GroupId(0), runner);
  int late = 0;
  for (const TrialOutcome& outcome : log.outcomes) {
    if (outcome.state != TrialState::failed) continue;
    ++late;
    EXPECT_EQ(outcome.steps, 14u);
    EXPECT_EQ(outcome.milestones.size(), 1u);
    EXPECT_EQ(outcome.reason, "late");
  }
  EXPECT_GT(late, 0);
}

TEST(Faults, AnExceptionThatTheRunnerDoesNotSurviveLosesItsGroupAndTellsHowFarItCame) {
  class Fatal : public SleepyRunner {
   public:
    using SleepyRunner::SleepyRunner;
    TrialReport advance(std::uint64_t) override {
      steps_ = 3;
      throw std::runtime_error("the device is gone");
    }
    bool survives(const std::exception&) const override { return false; }
  };
  for (MasterClock clock : {MasterClock::wall, MasterClock::counted_operations}) {
    MasterLog log;
    TrialMaster master(tiny_search(3), fault_options(clock, 2, 60), log.observer());
    std::thread breaking([&] {
      Fatal runner(1);
      EXPECT_THROW(run_trials(master, GroupId(0), runner), std::runtime_error);
    });
    SleepyRunner runner(2);
    run_trials(master, GroupId(1), runner);
    breaking.join();
    const auto lost = std::find_if(
        log.outcomes.begin(), log.outcomes.end(),
        [](const TrialOutcome& outcome) { return outcome.reason == "the device is gone"; });
    ASSERT_NE(lost, log.outcomes.end());
    EXPECT_EQ(lost->state, TrialState::failed);
    EXPECT_EQ(lost->steps, 3u);
    EXPECT_NE(lost->ops, Ops());
    EXPECT_EQ(master.statistics().groups_lost, 1u);
    EXPECT_GT(log.outcomes.size(), 1u);
  }
}

TEST(Faults, AGroupWhoseTimeIsOverLeavesAndTheOthersGoOn) {
  /// Over after its first trial, as by a signal that only its rank has seen yet.
  class Hasty : public SleepyRunner {
   public:
    using SleepyRunner::SleepyRunner;
    void end() override { over_ = true; }
    bool over() const override { return over_; }

   private:
    bool over_ = false;
  };
  MasterLog log;
  TrialMaster master(tiny_search(4), fault_options(MasterClock::counted_operations, 2, 400),
                     log.observer());
  std::thread leaving([&] {
    Hasty runner(1);
    run_trials(master, GroupId(0), runner);
  });
  SleepyRunner runner(2);
  run_trials(master, GroupId(1), runner);  // in virtual time it needs group 0's word
  leaving.join();
  EXPECT_GT(log.outcomes.size(), 5u);
  EXPECT_EQ(master.statistics().groups_lost, 0u);
  std::string reason;
  master.request_trial(GroupId(0), [&](Assignment a) { reason = a.reason; });
  EXPECT_EQ(reason, "the group is done");
}

TEST(Faults, ARunWhereEveryTrialFailsEnds) {
  MasterLog log;
  MasterOptions options = fault_options(MasterClock::wall, 1, 0);
  options.failures_in_a_row = 12;
  TrialMaster master(tiny_search(1), options, log.observer());
  BreakingRunner runner(BreakingRunner::Place::begin, 1);
  run_trials(master, GroupId(0), runner);
  EXPECT_EQ(log.outcomes.size(), 12u);
  std::string reason;
  master.request_trial(GroupId(0), [&](Assignment a) { reason = a.reason; });
  EXPECT_NE(reason.find("12 trials in a row failed (the last: out of memory)"), std::string::npos);
}

TEST(Faults, ALostGroupFreesItsTrialAndTheOthersGoOn) {
  for (MasterClock clock : {MasterClock::wall, MasterClock::counted_operations}) {
    MasterLog log;
    TrialMaster master(tiny_search(2), fault_options(clock, 4, 200), log.observer());
    std::optional<Trial> trial;
    master.request_trial(GroupId(0), [&](Assignment a) { trial = a.trial; });
    ASSERT_TRUE(trial.has_value());
    std::thread others([&] {
      std::vector<std::thread> threads;
      for (std::int32_t g = 1; g < 4; ++g) {
        threads.emplace_back([&master, g] {
          SleepyRunner runner(static_cast<std::uint64_t>(g));
          run_trials(master, GroupId(g), runner);
        });
      }
      for (auto& thread : threads) thread.join();
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    master.group_lost(GroupId(0), "rank 3 sent no heartbeat for 30 s");
    master.group_lost(GroupId(0), "again");
    others.join();
    const auto lost = std::find_if(log.outcomes.begin(), log.outcomes.end(),
                                   [&](const TrialOutcome& o) { return o.id == trial->id; });
    ASSERT_NE(lost, log.outcomes.end());
    EXPECT_EQ(lost->state, TrialState::failed);
    EXPECT_EQ(lost->reason, "rank 3 sent no heartbeat for 30 s");
    EXPECT_GT(log.outcomes.size(), 12u);
    EXPECT_EQ(master.statistics().groups_lost, 1u);
  }
}

TEST(Faults, ReportsAndRequestsOfALostGroupAreAnsweredWithTheEnd) {
  TrialMaster master(tiny_search(2), fault_options(MasterClock::counted_operations, 2, 200));
  std::optional<Trial> trial;
  master.request_trial(GroupId(0), [&](Assignment a) { trial = a.trial; });
  master.group_lost(GroupId(0), "gone");
  int over = 0;
  master.report_milestone(GroupId(0), simulated_report(*trial, 10),
                          [&](Decision d) { over += !d.until_step; });
  std::string reason;
  master.request_trial(GroupId(0), [&](Assignment a) { reason = a.reason; });
  EXPECT_EQ(over, 1);
  EXPECT_EQ(reason, "the group was lost: gone");
}

TEST(Faults, AGroupThatNeverStartsDoesNotHoldTheOthersOnceItIsDeclaredLost) {
  TrialMaster master(tiny_search(2), fault_options(MasterClock::counted_operations, 2, 50));
  std::optional<Trial> trial;
  master.request_trial(GroupId(1), [&](Assignment a) { trial = a.trial; });
  EXPECT_FALSE(trial.has_value());  // group 0 may still ask at the same virtual time
  master.group_lost(GroupId(0), "left early");
  EXPECT_TRUE(trial.has_value());
}

TEST(Faults, ALostGroupWaitingForAnAnswerNeverGetsOne) {
  TrialMaster master(tiny_search(2), fault_options(MasterClock::counted_operations, 2, 50));
  bool called = false;
  auto owned = std::make_shared<int>(1);
  const std::weak_ptr<int> watch = owned;
  master.request_trial(GroupId(1),
                       [&called, owned = std::move(owned)](Assignment) { called = true; });
  master.group_lost(GroupId(1), "gone");
  EXPECT_TRUE(watch.expired());
  std::optional<Trial> trial;
  master.request_trial(GroupId(0), [&](Assignment a) { trial = a.trial; });
  EXPECT_TRUE(trial.has_value());
  EXPECT_FALSE(called);
}

TEST(Faults, GroupsVanishAtRandomAndNobodyHangs) {
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    MasterLog log;
    TrialMaster master(tiny_search(seed), fault_options(MasterClock::counted_operations, 6, 120),
                       log.observer());
    std::thread killer([&] {
      RandomStream random(seed);
      for (int i = 0; i < 3; ++i) {
        std::this_thread::sleep_for(std::chrono::microseconds(random.below(3000)));
        master.group_lost(GroupId(static_cast<std::int32_t>(random.below(6))), "killed");
      }
    });
    run_groups(master, 6, seed);
    killer.join();
    std::set<std::uint64_t> ended;
    for (const TrialOutcome& outcome : log.outcomes) EXPECT_TRUE(ended.insert(outcome.id).second);
    EXPECT_EQ(ended.size(), master.statistics().search.proposals);
  }
}

TEST(Faults, CloseAnswersWhoeverWaits) {
  MasterLog log;
  TrialMaster master(tiny_search(2), fault_options(MasterClock::counted_operations, 3, 0),
                     log.observer());
  std::string told;
  std::optional<Trial> trial;
  master.request_trial(GroupId(0), [&](Assignment a) { trial = a.trial; });
  master.request_trial(GroupId(2), [&](Assignment a) { told = a.reason; });
  EXPECT_TRUE(told.empty());
  master.close("the user stopped the run");
  EXPECT_EQ(told, "the user stopped the run");
  // The running one is truncated at its next report, with what it has reached.
  TrialReport report = simulated_report(*trial, 10);
  report.health = TrialReport::Health::fine;
  report.steps = 4;
  std::optional<Decision> decision;
  master.report_milestone(GroupId(0), report, [&](Decision d) { decision = d; });
  ASSERT_TRUE(decision && decision->outcome);
  EXPECT_EQ(decision->outcome->state, TrialState::truncated);
  EXPECT_EQ(decision->outcome->steps, 4u);
  EXPECT_EQ(decision->outcome->reason, "the user stopped the run");
}

TEST(Faults, AnExhaustedSpaceEndsTheRunWithItsReason) {
  SearchOptions search;
  search.space.max_width = 6;
  search.space.max_layers = 3;
  search.space.min_spatial_size = 9;
  MasterLog log;
  TrialMaster master(Search(tiny_classifier(), search),
                     fault_options(MasterClock::counted_operations, 2, 0), log.observer());
  run_groups(master, 2, 1);
  EXPECT_GE(log.outcomes.size(), 1u);
  EXPECT_LE(log.outcomes.size(), 4u);
  std::string reason;
  master.request_trial(GroupId(0), [&](Assignment a) { reason = a.reason; });
  EXPECT_NE(reason.find("no further architecture"), std::string::npos);
}

TEST(Faults, MisuseIsABug) {
  TrialMaster master(tiny_search(2), fault_options(MasterClock::wall, 1, 0));
  EXPECT_THROW(master.request_trial(GroupId(1), [](Assignment) {}), Error);
  EXPECT_THROW(master.report_milestone(GroupId(0), {}, [](Decision) {}), Error);
  master.request_trial(GroupId(0), [](Assignment) {});
  EXPECT_THROW(master.request_trial(GroupId(0), [](Assignment) {}), Error);
  TrialReport foreign;
  foreign.id = 12;
  EXPECT_THROW(master.report_milestone(GroupId(0), foreign, [](Decision) {}), Error);
}

/// A runner whose clean-up breaks must not leave the others waiting.
TEST(Faults, ARunnerThatBreaksInEndLosesItsGroupOnly) {
  class BadEnd : public SleepyRunner {
   public:
    using SleepyRunner::SleepyRunner;
    void end() override { throw std::runtime_error("device lost"); }
  };
  TrialMaster master(tiny_search(2), fault_options(MasterClock::counted_operations, 2, 100));
  std::thread breaking([&] {
    BadEnd runner(1);
    EXPECT_THROW(run_trials(master, GroupId(0), runner), std::runtime_error);
  });
  SleepyRunner runner(2);
  run_trials(master, GroupId(1), runner);
  breaking.join();
  EXPECT_EQ(master.statistics().groups_lost, 1u);
}

}  // namespace
}  // namespace heteroperf
