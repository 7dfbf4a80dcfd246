#include "runners/plan/ready/ready_plan.hpp"

#include "runners/plan/ready/plan_schedule.hpp"
#include "tests/unit/runners/plan/plan_cases.hpp"

namespace heteroperf {
namespace {

StageTimes times_of(std::vector<double> reduction_s) {
  StageTimes times;
  for (std::size_t s = 0; s < reduction_s.size(); ++s) times.compute.push_back({{1, 0, 1, 1}});
  times.activation_s.assign(reduction_s.size(), 0);
  times.gradient_s = times.activation_s;
  times.optimizer_s.assign(reduction_s.size(), 0);
  times.reduction_s = std::move(reduction_s);
  return times;
}

Prediction predicted(const ModelGraph& graph, const Plan& plan, const StageTimes& times) {
  const StagedGraph staged = cut_graph(graph, plan);
  const Schedule schedule = plan_schedule(graph, staged, plan, &times);
  return predict(staged, plan, times, schedule, simulate(schedule));
}

TEST(Prediction, TwoStagesByHand) {
  const ModelGraph graph = linear_chain(2);
  Plan plan = chain_plan(graph, {3});
  plan.schedule = "gpipe";
  plan.micro_batches = 2;
  StageTimes times = times_of({0.5, 4});
  times.activation_s[0] = 0.5;
  times.gradient_s[0] = 0.25;
  times.optimizer_s = {0.1, 0.1};
  times.agreement_s = 0.05;
  const Prediction prediction = predicted(graph, plan, times);
  // Stage 0: F 0-1, 1-2, BW 5.75-7.75-9.75; stage 1: F 1.5-2.5-3.5, BW 3.5-5.5-7.5, sums to 11.5.
  EXPECT_DOUBLE_EQ(prediction.pipeline.makespan, 9.75);
  EXPECT_DOUBLE_EQ(prediction.reduction_exposed_s[0], 0.5);
  EXPECT_DOUBLE_EQ(prediction.reduction_exposed_s[1], 4);
  EXPECT_DOUBLE_EQ(prediction.step_time_s, 11.65);
  EXPECT_DOUBLE_EQ(prediction.throughput, 2 / 11.65);
}

TEST(Prediction, SumsOfLaterStagesHideBehindEarlierOnes) {
  const ModelGraph graph = linear_chain(2);
  Plan plan = chain_plan(graph, {3});
  plan.stages[1].replicas[0].ranks = {RankId(0)};
  plan.schedule = "looped-bfs";
  plan.chunks = 2;
  // F 0-1, F 1-2, BW of stage 1 2-4, BW of stage 0 4-6.
  EXPECT_DOUBLE_EQ(predicted(graph, plan, times_of({1, 1.5})).step_time_s, 7);
  EXPECT_DOUBLE_EQ(predicted(graph, plan, times_of({1, 3})).step_time_s, 8);
  EXPECT_DOUBLE_EQ(predicted(graph, plan, times_of({1, 3})).reduction_exposed_s[0], 2);
  EXPECT_DOUBLE_EQ(predicted(graph, plan, times_of({0, 1})).reduction_exposed_s[0], 0);
}

TEST(Prediction, RecomputationCostsAForward) {
  const ModelGraph graph = linear_chain(2);
  Plan plan = chain_plan(graph, {});
  plan.micro_batches = 3;
  EXPECT_DOUBLE_EQ(predicted(graph, plan, times_of({0})).step_time_s, 9);
  plan.stages[0].recomputation = Recomputation::full;
  StageTimes times = times_of({0});
  times.compute[0][0].recompute_s = 1;
  EXPECT_DOUBLE_EQ(predicted(graph, plan, times).step_time_s, 12);
}

TEST(Prediction, TheSlowestReplicaCounts) {
  const ModelGraph graph = linear_chain(2);
  Plan plan = chain_plan(graph, {});
  plan.stages[0].replicas.push_back({{RankId(1)}, 1, "", 0});
  StageTimes times = times_of({0});
  times.compute[0] = {{1, 0, 5, 1}, {2, 0, 1, 1}};
  EXPECT_DOUBLE_EQ(predicted(graph, plan, times).step_time_s, 8);
}

}  // namespace
}  // namespace heteroperf
