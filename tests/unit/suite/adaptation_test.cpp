#include "suite/training/adaptation.hpp"

#include <gtest/gtest.h>

#include "metrics/base/error.hpp"
#include "runners/plan/plan_json.hpp"
#include "suite/planning/learned_rates.hpp"
#include "workloads/workload_factories.hpp"

namespace heteroperf {
namespace {

constexpr double threshold = 0.05;

Workload smallest_llm() {
  WorkloadRequest request;
  request.size = "nano";
  return make_llm(request, {std::uint64_t{8} << 30, 1e10});
}

/// A training of 8 samples per step on a machine whose classes may change their speed.
class AdaptationTest : public testing::Test {
 protected:
  AdaptationTest() { start_.emplace(complete_plan(plan_for(cluster_), workload_, cluster_)); }

  Plan plan_for(const Cluster& cluster) const {
    Plan plan = search_plan(workload_, cluster, 8, 10).best.value().plan;
    plan.cluster = "fast2_slow6";
    return plan;
  }
  TrainingTask task() const {
    return {workload_.graph, workload_.precision, workload_.recipe.kind};
  }
  /// The machine as it is once `name` takes `factor` times as long.
  Cluster slowed(const std::string& name, double factor) const {
    Cluster slower = cluster_;
    apply(scaled_rates(matrix_of(cluster_), name, "fp32", 1 / factor, {}), slower);
    return slower;
  }
  /// The times that emulated ranks of that machine measure: their clock has sums in the passes.
  std::vector<MeasuredSteps> measured_on(const Cluster& machine, const Plan& plan) const {
    Plan bare = plan;
    bare.efficiency = {};
    const ReadyPlan ready(task(), bare, machine);
    std::vector<MeasuredSteps> measured;
    for (const double busy_s : ready.busy_s()) {
      measured.push_back({ready.predicted().step_time_s, busy_s});
    }
    return measured;
  }

  Workload workload_ = smallest_llm();
  Cluster cluster_ = find_cluster("fast2_slow6");
  std::optional<ChosenPlan> start_;
};

TEST_F(AdaptationTest, AsPlannedNothingIsSearched) {
  PlanJudge judge(workload_, *start_, threshold);
  for (const std::uint64_t steps : {10u, 20u}) {
    const AdaptEvent look = judge.look(steps, measured_on(cluster_, start_->plan));
    EXPECT_EQ(look.n, steps);
    EXPECT_EQ(look.decision, AdaptDecision::as_planned);
    EXPECT_NEAR(look.deviation, 0, 1e-9);
    EXPECT_FALSE(look.search_s);
    EXPECT_TRUE(look.plan.text.empty());
    EXPECT_EQ(look.ranks.size(), 8u);
    EXPECT_EQ(look.classes.size(), 2u);
  }
}

/// A deviation up to the threshold cannot be worth a search.
TEST_F(AdaptationTest, ASmallChangeIsNoReasonToSearch) {
  PlanJudge judge(workload_, *start_, threshold);
  const AdaptEvent look = judge.look(10, measured_on(slowed("fast", 1.04), start_->plan));
  EXPECT_EQ(look.decision, AdaptDecision::as_planned);
  EXPECT_NEAR(look.deviation, 0.04, 1e-9);
}

TEST_F(AdaptationTest, ASlowClassGetsThePlanThatIsBestForIt) {
  const Cluster slower = slowed("fast", 1.5);
  PlanJudge judge(workload_, *start_, threshold);
  const AdaptEvent look = judge.look(10, measured_on(slower, start_->plan));
  ASSERT_EQ(look.decision, AdaptDecision::new_plan);
  EXPECT_NEAR(look.deviation, 0.5, 1e-6);
  EXPECT_GT(look.gain.value(), threshold);
  EXPECT_NEAR(look.gain.value(), *look.kept_step_s / *look.new_step_s - 1, 1e-12);
  const Plan plan = parse_plan(look.plan.text, "the new plan");
  EXPECT_EQ(plan.samples_per_step(), start_->plan.samples_per_step());
  EXPECT_EQ(plan.ranks(), 8);
  // As good as the plan that whoever knew all of it beforehand had found.
  Plan bare = plan;
  bare.efficiency = {};
  const double step_s = ReadyPlan(task(), bare, slower).predicted().step_time_s;
  EXPECT_NEAR(step_s, *look.new_step_s, 1e-6 * step_s);
  const double best_s = search_plan(workload_, slower, 8, 10).best->predicted().step_time_s;
  EXPECT_LE(step_s, best_s / 0.95);
  // What was learned is what the next look plans with.
  const AdaptEvent next = judge.look(20, measured_on(slower, plan));
  EXPECT_EQ(next.decision, AdaptDecision::as_planned);
  EXPECT_NEAR(next.deviation, 0, 1e-6);
  EXPECT_NEAR(next.planned_step_s, step_s, 1e-6 * step_s);
  // And when the class recovers, so does the plan.
  const AdaptEvent last = judge.look(30, measured_on(cluster_, plan));
  ASSERT_EQ(last.decision, AdaptDecision::new_plan);
  EXPECT_NEAR(*last.new_step_s, start_->predicted().step_time_s, 1e-6 * *last.new_step_s);
}

/// While weights move, a rank holds its state of both plans.
TEST_F(AdaptationTest, WhereTheStatesOfBothPlansDoNotFitThePlanStays) {
  const Cluster slower = slowed("fast", 1.5);
  PlanJudge unlimited(workload_, *start_, threshold);
  const AdaptEvent taken = unlimited.look(10, measured_on(slower, start_->plan));
  ASSERT_EQ(taken.decision, AdaptDecision::new_plan);
  Bytes most;
  for (const std::string& text : {plan_text(start_->plan), taken.plan.text}) {
    Plan bare = parse_plan(text, "a plan");
    bare.efficiency = {};
    for (const MemoryLedger& rank : ReadyPlan(task(), bare, slower).memory) {
      most = std::max(most, rank.total());
    }
  }
  Cluster small = cluster_;
  for (DeviceClass& device : small.classes) device.memory = most;
  const ChosenPlan start = complete_plan(start_->plan, workload_, small);
  PlanJudge judge(workload_, start, threshold);
  const AdaptEvent kept = judge.look(10, measured_on(slower, start.plan));
  EXPECT_EQ(kept.decision, AdaptDecision::no_gain);
  EXPECT_FALSE(kept.gain.has_value());
  EXPECT_NE(kept.reason.find("would hold both plans' weights"), std::string::npos) << kept.reason;
  EXPECT_TRUE(kept.plan.text.empty());
}

/// Where everything is slower alike no plan gains anything, and one search finds that out.
TEST_F(AdaptationTest, WithoutGainThePlanStays) {
  Cluster slower = slowed("fast", 1.5);
  apply(scaled_rates(matrix_of(cluster_), "slow", "fp32", 1 / 1.5, {}), slower);
  PlanJudge judge(workload_, *start_, threshold);
  const AdaptEvent look = judge.look(10, measured_on(slower, start_->plan));
  EXPECT_EQ(look.decision, AdaptDecision::no_gain);
  EXPECT_TRUE(look.search_s);
  EXPECT_LE(look.gain.value(), threshold);
  EXPECT_TRUE(look.plan.text.empty());
  EXPECT_EQ(judge.look(20, measured_on(slower, start_->plan)).decision, AdaptDecision::as_planned);
}

TEST_F(AdaptationTest, TimesOfAnotherMachineAreSaidAndChangeNothing) {
  PlanJudge judge(workload_, *start_, threshold);
  std::vector<MeasuredSteps> measured = measured_on(cluster_, start_->plan);
  for (MeasuredSteps& rank : measured) rank.computing_s *= 1e6;
  const AdaptEvent look = judge.look(10, measured);
  EXPECT_EQ(look.decision, AdaptDecision::no_gain);
  EXPECT_NE(look.reason.find("are predicted"), std::string::npos) << look.reason;
  EXPECT_EQ(judge.look(20, measured_on(cluster_, start_->plan)).decision,
            AdaptDecision::as_planned);
}

TEST(LearnedRates, AllOfAClassFollowsItsTime) {
  const Workload workload = smallest_llm();
  const Cluster cluster = find_cluster("fast2_slow6");
  const TrainingTask task{workload.graph, workload.precision, workload.recipe.kind};
  const Plan plan = search_plan(workload, cluster, 16, 10).best.value().plan;
  const std::vector<double> planned_s = computing_s(task, plan, cluster);
  std::vector<std::optional<double>> measured_s(planned_s.begin(), planned_s.end());
  for (int rank = 2; rank < 8; ++rank) *measured_s[rank] *= 3;
  measured_s[7].reset();  // was not measured
  const LearnedRates learned =
      learn_rates(cluster, task.precision, planned_s, measured_s, "a test");
  ASSERT_EQ(learned.classes.size(), 2u);
  EXPECT_NEAR(learned.classes[0].speed(), 1, 1e-9);
  EXPECT_NEAR(learned.classes[1].speed(), 1.0 / 3, 1e-9);
  EXPECT_EQ(learned.classes[1].ranks, 5);
  Cluster known = cluster;
  apply(learned.matrix, known);
  const std::vector<double> relearned_s = computing_s(task, plan, known);
  for (int rank = 0; rank < 8; ++rank) {
    const double expected_s = planned_s[rank] * (rank < 2 ? 1 : 3);
    EXPECT_NEAR(relearned_s[rank], expected_s, 1e-9 * expected_s) << rank;
  }
}

}  // namespace
}  // namespace heteroperf
