#include "results/record/ruleset.hpp"

#include <gtest/gtest.h>

#include <set>

#include "results/record/record.hpp"
#include "tests/unit/results/rule_cases.hpp"

namespace heteroperf {
namespace {

TEST(Ruleset, AFullRunIsClosed) {
  const Validity validity = judged(fixed_run());
  EXPECT_EQ(validity.severity, Severity::closed);
  EXPECT_TRUE(validity.rankable());
  EXPECT_TRUE(validity.reasons.empty()) << validity.reasons.front().rule;
}

TEST(Ruleset, ASearchWithADivergedTrialIsClosed) {
  const Validity validity = judged(search_run());
  EXPECT_EQ(validity.severity, Severity::closed)
      << validity.reasons.front().rule << ": " << validity.reasons.front().actual;
}

TEST(Ruleset, ANaNOfATrialThatIsNotAnOutcomeIsInvalid) {
  SampleRun run = search_run();
  for (JournalLine& line : run.lines) {
    auto* trial = std::get_if<TrialEvent>(&line.event);
    if (trial != nullptr && trial->state == TrialStatus::diverged) {
      trial->state = TrialStatus::completed;
    }
  }
  EXPECT_TRUE(rules_of(judged(run)).contains("finite_loss"));
}

TEST(Ruleset, EachRuleTripsWhereItShouldAndNotNextToIt) {
  for (const RuleCase& one : rule_cases()) {
    SampleRun tripped = fixed_run();
    tripped.last<WorkloadEvent>().error_floor = 0.05;
    tripped.last<WorkloadEvent>().quality_target = 0.5;
    SampleRun passed = tripped;
    one.trips(tripped);
    one.passes(passed);
    const Validity bad = judged(tripped);
    EXPECT_TRUE(rules_of(bad).contains(one.rule)) << one.rule;
    EXPECT_FALSE(rules_of(judged(passed)).contains(one.rule)) << one.rule;
    EXPECT_GE(bad.severity, one.severity) << one.rule;
    EXPECT_FALSE(bad.rankable()) << one.rule;
    if (bad.reasons.size() == 1) {
      EXPECT_EQ(bad.severity, one.severity) << one.rule;
    }
    for (const Reason& reason : bad.reasons) {
      EXPECT_NE(reason.expected, "") << reason.rule;
      EXPECT_NE(reason.actual, "") << reason.rule;
      EXPECT_NE(reason.hint, "") << reason.rule;
      EXPECT_TRUE(reason.rule != one.rule || reason.severity == one.severity) << one.rule;
    }
  }
}

/// Load that is seen at one end of a run excuses only the peak that was measured then.
TEST(Ruleset, AQuietPeakIsNotExcusedByALoadedOne) {
  SampleRun run = fixed_run();
  const double ops = rate_under_peak(run);
  run.last<PeakEvent>().ops_per_second = ops / 2;
  run.last<PeakEvent>().other_load = 0.9;
  EXPECT_EQ(judged(run).severity, Severity::review);
  run.insert_before_stop(PeakEvent{ops / 1.2, "fp32"});
  EXPECT_EQ(rules_of(judged(run)), std::set<std::string>{"above_peak"});
  run.last<PeakEvent>().other_load = 0.9;
  EXPECT_EQ(rules_of(judged(run)), std::set<std::string>{"above_loaded_peak"});
}

TEST(Ruleset, ForeseesWhatARunCannotBe) {
  SampleRun run = fixed_run();
  run.lines.resize(run.index<PhaseEvent>());
  EXPECT_TRUE(foresee(run.journal(), {300.0, true}).reasons.empty());
  EXPECT_TRUE(foresee(run.journal(), {std::nullopt, true}).reasons.empty()) << "steps are counted";
  std::get<StartEvent>(run.lines[0].event).quick = true;
  run.last<WorkloadEvent>().precision = "fp64";
  run.last<ScaleEvent>().devices.push_back({"gpu", 1, 1, true});
  const Validity foreseen = foresee(run.journal(), {299.0, false});
  EXPECT_EQ(rules_of(foreseen), (std::set<std::string>{"peak_not_measured", "duration", "quick",
                                                       "precision", "emulated"}));
  EXPECT_EQ(foreseen.severity, Severity::open);
  EXPECT_FALSE(foreseen.rankable());
}

TEST(Ruleset, EveryRuleHasACase) {
  std::set<std::string> covered, known;
  for (const RuleCase& one : rule_cases()) covered.insert(one.rule);
  for (const Rule& rule : all_rules()) known.insert(rule.id);
  EXPECT_EQ(covered, known);
  EXPECT_EQ(known.size(), all_rules().size()) << "two rules share a name";
}

TEST(Ruleset, NoScoreIsPrintedForAnInvalidRun) {
  for (const RuleCase& one : rule_cases()) {
    SampleRun run = fixed_run();
    one.trips(run);
    const std::string record = build_record(run.journal());
    const bool invalid = judged(run).severity == Severity::invalid;
    for (const char* score :
         {"ops_per_second\": {", "throughput", "regulated_score", "utilization"}) {
      const bool printed = record.find('"' + std::string(score)) != std::string::npos;
      EXPECT_FALSE(invalid && printed) << one.rule << " " << score;
    }
  }
}

}  // namespace
}  // namespace heteroperf
