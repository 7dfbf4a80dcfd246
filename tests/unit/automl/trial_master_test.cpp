#include "automl/trial_master.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <set>

#include "metrics/base/error.hpp"
#include "tests/unit/automl/simulated_groups.hpp"
#include "workloads/graph/graph_counts.hpp"

namespace heteroperf {
namespace {

MasterOptions options_for(MasterClock clock, std::size_t groups, std::uint64_t steps) {
  MasterOptions options;
  options.clock = clock;
  options.group_ranks.assign(groups, 1);
  options.steps_per_group = steps;
  options.rungs = {10, 3, 3};
  return options;
}

std::vector<std::string> virtual_run(std::size_t groups, std::uint64_t timing_seed) {
  MasterLog log;
  TrialMaster master(tiny_search(5), options_for(MasterClock::counted_operations, groups, 400),
                     log.observer());
  run_groups(master, groups, timing_seed);
  return log.lines;
}

TEST(VirtualTime, TheSameTrialsWhateverTheTiming) {
  for (std::size_t groups : {1u, 2u, 3u, 7u}) {
    const auto expected = virtual_run(groups, 1);
    EXPECT_GT(expected.size(), 10 * groups) << groups;
    for (std::uint64_t timing = 2; timing <= 9; ++timing) {
      ASSERT_EQ(virtual_run(groups, timing), expected) << groups << " groups, timing " << timing;
    }
  }
}

TEST(VirtualTime, TheSameTrialsInEveryOrderOfMessages) {
  std::vector<std::string> expected;
  for (std::uint64_t order = 1; order <= 40; ++order) {
    MasterLog log;
    TrialMaster master(tiny_search(6), options_for(MasterClock::counted_operations, 9, 120),
                       log.observer());
    GroupSimulator groups(master, 9);
    RandomStream random(order);
    while (groups.step(random)) {
    }
    ASSERT_EQ(groups.finished, 9u);
    if (order == 1) expected = log.lines;
    ASSERT_EQ(log.lines, expected) << "order " << order;
  }
}

/// An outcome may shape a proposal only when it is earlier in virtual time: replays the log against
/// clocks of its own.
TEST(VirtualTime, EventsAreAnsweredInTheOrderOfCountedOperations) {
  struct Event {
    Ops time;
    std::int32_t group;
  };
  std::vector<Event> events;
  std::map<std::int32_t, Ops> clocks;
  MasterObserver observer;
  observer.on_trial = [&](GroupId group, const Trial&) {
    events.push_back({clocks[group.value()], group.value()});
  };
  observer.on_outcome = [&](GroupId group, const Trial& trial, const TrialOutcome& outcome) {
    // A diverged trial is seen at the planned end of its segment.
    std::uint64_t planned = outcome.steps;
    if (outcome.state == TrialState::diverged) planned = 2 * outcome.steps;
    clocks[group.value()] += ops_per_step(trial, group.value() == 1 ? 2 : 1) * planned;
    events.push_back({clocks[group.value()], group.value()});
  };
  MasterOptions options = options_for(MasterClock::counted_operations, 4, 0);
  options.group_ranks = {1, 2, 1, 1};
  options.rungs = {10, 3, 1};
  TrialMaster master(tiny_search(2), options, observer);
  GroupSimulator groups(master, 4);
  RandomStream random(1);
  for (int i = 0; i < 400; ++i) ASSERT_TRUE(groups.step(random));
  ASSERT_GT(events.size(), 200u);
  for (std::size_t i = 1; i < events.size(); ++i) {
    const auto &a = events[i - 1], &b = events[i];
    EXPECT_LE(std::pair(a.time, a.group), std::pair(b.time, b.group)) << i;
  }
}

TEST(VirtualTime, EveryGroupTrainsExactlyItsSteps) {
  std::map<std::int32_t, std::uint64_t> steps;
  std::map<std::int32_t, TrialState> last;
  MasterObserver observer;
  observer.on_outcome = [&](GroupId group, const Trial&, const TrialOutcome& outcome) {
    steps[group.value()] +=
        outcome.state == TrialState::diverged ? 2 * outcome.steps : outcome.steps;
    last[group.value()] = outcome.state;
  };
  MasterOptions options = options_for(MasterClock::counted_operations, 5, 137);
  options.rungs = {10, 3, 1};
  TrialMaster master(tiny_search(3), options, observer);
  GroupSimulator groups(master, 5);
  RandomStream random(4);
  while (groups.step(random)) {
  }
  EXPECT_EQ(groups.finished, 5u);
  for (std::int32_t g = 0; g < 5; ++g) {
    // 7 steps remain for the last trial; half of an odd number of diverged steps is rounded down.
    EXPECT_NEAR(static_cast<double>(steps[g]), 137.0, 1.0) << g;
    EXPECT_TRUE(last[g] == TrialState::truncated || last[g] == TrialState::diverged);
  }
}

TEST(VirtualTime, AThousandGroups) {
  std::vector<std::string> expected;
  for (std::uint64_t order : {1, 2}) {
    MasterLog log;
    TrialMaster master(tiny_search(8), options_for(MasterClock::counted_operations, 1000, 30),
                       log.observer());
    GroupSimulator groups(master, 1000);
    RandomStream random(order);
    while (groups.step(random)) {
    }
    EXPECT_EQ(groups.finished, 1000u);
    // One message per request and per milestone, nothing polled.
    EXPECT_EQ(master.statistics().answers, groups.said);
    EXPECT_GE(log.outcomes.size(), 1500u);
    if (order == 1) expected = log.lines;
    ASSERT_EQ(log.lines == expected, true);
  }
}

TEST(WallTime, AnswersAtOnceWhateverTheOthersDo) {
  TrialMaster master(tiny_search(1), options_for(MasterClock::wall, 3, 0));
  for (std::int32_t g : {2, 0, 1}) {
    std::optional<Trial> trial;
    master.request_trial(GroupId(g), [&](Assignment a) { trial = a.trial; });
    ASSERT_TRUE(trial.has_value());
    EXPECT_EQ(trial->steps, 10u);
    std::optional<Decision> decision;
    master.report_milestone(GroupId(g), simulated_report(*trial, trial->steps),
                            [&](Decision d) { decision = d; });
    ASSERT_TRUE(decision.has_value());
  }
}

TEST(WallTime, ManyThreadsUntilClosed) {
  MasterLog log;
  TrialMaster master(tiny_search(4), options_for(MasterClock::wall, 6, 0), log.observer());
  std::thread closer([&] {
    while (master.statistics().search.proposals < 150) std::this_thread::yield();
    master.close("time is over");
  });
  run_groups(master, 6, 3);
  closer.join();
  std::set<std::uint64_t> begun, ended;
  for (const TrialOutcome& outcome : log.outcomes) {
    EXPECT_TRUE(ended.insert(outcome.id).second);
    if (outcome.state == TrialState::truncated) {
      EXPECT_EQ(outcome.reason, "time is over");
    }
  }
  EXPECT_GE(ended.size(), 150u);
  EXPECT_EQ(ended.size(), master.statistics().search.proposals);
}

TEST(Rounds, BudgetsGrowAndOutcomesSayHowTrialsEnded) {
  MasterLog log;
  TrialMaster master(tiny_search(9), options_for(MasterClock::wall, 1, 3000), log.observer());
  GroupSimulator groups(master, 1);
  RandomStream random(1);
  while (groups.step(random)) {
  }
  std::map<TrialState, int> count;
  for (const TrialOutcome& outcome : log.outcomes) {
    ++count[outcome.state];
    if (outcome.state == TrialState::completed) {
      EXPECT_EQ(outcome.steps, 90u);
      EXPECT_EQ(outcome.milestones.size(), 3u);
    }
    if (outcome.state == TrialState::stopped) {
      EXPECT_EQ(outcome.steps, outcome.milestones.size() == 1 ? 10u : 30u);
    }
  }
  EXPECT_GT(count[TrialState::completed], 0);
  EXPECT_GT(count[TrialState::stopped], count[TrialState::completed]);
  EXPECT_GT(count[TrialState::diverged], 0);
}

TEST(Rounds, OperationsAreStepsTimesBatchTimesRanks) {
  MasterOptions options = options_for(MasterClock::wall, 1, 0);
  options.group_ranks = {4};
  options.rungs = {10, 3, 1};
  TrialMaster master(tiny_search(1), options);
  Trial trial;
  master.request_trial(GroupId(0), [&](Assignment a) { trial = a.trial.value(); });
  TrialReport report;
  report.id = trial.id;
  report.steps = 10;
  report.quality = 0.5;
  Decision decision;
  master.report_milestone(GroupId(0), report, [&](Decision d) { decision = d; });
  ASSERT_TRUE(decision.outcome.has_value());
  EXPECT_EQ(decision.outcome->ops,
            strict_train_ops(trial.graph, 1) * static_cast<std::uint64_t>(trial.hyper.batch) * 40);
}

TEST(History, SurvivesARestart) {
  MasterLog first;
  {
    TrialMaster master(tiny_search(7), options_for(MasterClock::counted_operations, 3, 300),
                       first.observer());
    run_groups(master, 3, 1);
  }
  MasterLog second;
  TrialMaster master(tiny_search(7), options_for(MasterClock::counted_operations, 3, 300),
                     second.observer());
  master.restore(first.history);
  run_groups(master, 3, 2);
  std::set<std::string> hashes;
  std::uint64_t largest = 0;
  for (const auto* log : {&first, &second}) {
    for (const HistoryEntry& entry : log->history) {
      EXPECT_TRUE(hashes.insert(architecture_of(entry.trial.graph).hash()).second);
      EXPECT_TRUE(largest == 0 || log == &first || entry.trial.id >= first.history.size());
      largest = std::max(largest, entry.trial.id);
    }
  }
  EXPECT_GT(second.history.size(), 5u);
}

TEST(Callbacks, MayCallTheMasterAgain) {
  TrialMaster master(tiny_search(1), options_for(MasterClock::wall, 1, 0));
  int trials = 0;
  std::function<void()> ask = [&] {
    master.request_trial(GroupId(0), [&](Assignment assignment) {
      if (!assignment.trial) return;
      if (++trials == 50) master.close();
      master.report_milestone(GroupId(0), simulated_report(*assignment.trial, 1),
                              [&](Decision) { ask(); });
    });
  };
  ask();
  EXPECT_EQ(trials, 50);
}

TEST(Statistics, CountProposalsLatencyAndIdleTime) {
  TrialMaster master(tiny_search(1), options_for(MasterClock::counted_operations, 2, 100));
  run_groups(master, 2, 1);
  const MasterStatistics statistics = master.statistics();
  EXPECT_GT(statistics.search.proposals, 2u);
  EXPECT_GT(statistics.proposal_p50.value(), 0.0);
  EXPECT_LE(statistics.proposal_p50, statistics.proposal_p99);
  EXPECT_GT(statistics.idle.value(), 0.0);
  EXPECT_GT(statistics.answers, 2 * statistics.search.proposals);
}

TEST(Options, EveryGroupHasARank) {
  MasterOptions options;
  options.group_ranks = {1, 0};
  EXPECT_THROW(TrialMaster(tiny_search(1), options), Error);
  options.group_ranks = {};
  EXPECT_THROW(TrialMaster(tiny_search(1), options), Error);
}

}  // namespace
}  // namespace heteroperf
