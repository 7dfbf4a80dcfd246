#include "runners/plan/search/score/draft_scorer.hpp"

#include "runners/plan/plan_cluster.hpp"
#include "runners/plan/ready/ready_plan.hpp"
#include "tests/unit/runners/plan/search/search_cases.hpp"
#include "workloads/models/models.hpp"

namespace heteroperf {
namespace {

Cluster two_classes() {
  return mixed_cluster({{"fast", 6, 4, 4e9, 1e9}, {"slow", 8, 4, 1.3e9, 1e9}}, 2e9, 1e8);
}

/// Drafts and their plans are worth the same, to the last digits, by code that shares nothing but
/// the tables.
TEST(DraftScorer, AgreesWithThePredictionOfItsPlan) {
  const ModelGraph graph = build_model("nano");
  const Cluster cluster = two_classes();
  PlanningRequest request;
  request.batch = 64;
  request.most_samples = 16;
  const GraphProblem problem(graph, cluster, request);
  const DraftScorer scorer(problem.problem());
  std::mt19937_64 random(7);
  int stages = 0, lower = 0;
  double worst = 0;
  for (int i = 0; i < 60; ++i) {
    const PipelineDraft draft = random_draft(problem.problem(), random);
    const Plan plan = problem.plan(draft);
    const ReadyPlan ready = ready_without_limits(problem, plan);
    const Prediction& prediction = ready.predicted();
    const DraftScore score = scorer.score(draft);
    EXPECT_NEAR(score.step_time_s, prediction.step_time_s, 1e-9 * prediction.step_time_s)
        << to_text(draft);
    EXPECT_NEAR(score.makespan_s, prediction.pipeline.makespan, 1e-9 * score.makespan_s);
    stages += static_cast<int>(draft.stages.size());
    double most = 0, expected = 0;
    for (const MemoryLedger& ledger : ready.memory) {
      most = std::max(most, static_cast<double>(ledger.total().value()));
    }
    for (const StageScore& stage : score.stages) expected = std::max(expected, stage.memory_bytes);
    worst = std::max(worst, std::abs(expected / most - 1));
    lower += expected < 0.98 * most ? 1 : 0;
  }
  EXPECT_GT(stages, 90);
  RecordProperty("largest_memory_error", std::to_string(worst));
  // The search's memory is an estimate on the safe side; the ready plan has the last word.
  EXPECT_LE(lower, 3) << worst;
}

/// Two hosts of three devices have room for two pairs, not for three.
TEST(DraftScorer, TensorParallelGroupsFindNodes) {
  const ModelGraph graph = build_model("nano");
  const Cluster cluster = mixed_cluster({{"only", 6, 3, 4e9, 64e9}}, 1e9, 1e9);
  PlanningRequest request;
  request.batch = 6;
  const GraphProblem problem(graph, cluster, request);
  ASSERT_EQ(problem.problem().degrees.at(1), 2);
  const DraftScorer scorer(problem.problem());
  PipelineDraft draft;
  DraftStage stage;
  stage.end = problem.problem().layers;
  for (const int pairs : {1, 2, 3}) {
    stage.groups = {{0, 1, pairs, 1}};
    draft.stages = {stage};
    set_schedule(draft, "1f1b");
    EXPECT_EQ(scorer.score(draft).fits(), pairs < 3);
    EXPECT_EQ(problems_of([&] { problem.plan(draft); }).empty(), pairs < 3);
  }
}

TEST(DraftScorer, TheFormulaIsExactForEqualStagesWithoutMessages) {
  std::vector<ClockStage> stages(4, ClockStage{1, 0, 1, 1, 0, 0, 0});
  for (int s = 0; s < 4; ++s) stages[static_cast<std::size_t>(s)].warm_up = 3 - s;
  const std::vector<double> ends = pipeline_ends(stages, 8);
  EXPECT_DOUBLE_EQ(ends.front(), 4 * 3 + 7 * 3);
  EXPECT_DOUBLE_EQ(pipeline_estimate(stages, 8), ends.front());
}

TEST(DraftScorer, ManyMicroBatchesAreExtrapolated) {
  const ModelGraph graph = build_model("nano");
  PlanningRequest request;
  request.batch = 64;
  request.most_samples = 16;
  const Cluster cluster = two_classes();
  const GraphProblem problem(graph, cluster, request);
  const DraftScorer scorer(problem.problem());
  std::mt19937_64 random(8);
  for (int i = 0; i < 60; ++i) {
    PipelineDraft draft = random_draft(problem.problem(), random);
    const double few = scorer.score(draft).step_time_s;
    EXPECT_DOUBLE_EQ(scorer.extrapolate(draft).step_time_s, few) << to_text(draft);
    draft.micro_batches = 700;
    set_schedule(draft, draft.schedule);
    const double exact = scorer.score(draft).step_time_s;
    EXPECT_NEAR(scorer.extrapolate(draft).step_time_s, exact, 2e-3 * exact) << to_text(draft);
  }
}

TEST(DraftScorer, DeeperWarmUpsPayOnSlowLinks) {
  std::vector<ClockStage> stages(4, ClockStage{1, 0, 1, 1, 1, 1, 0});
  for (int s = 0; s < 4; ++s) stages[static_cast<std::size_t>(s)].warm_up = 3 - s;
  const double shallow = pipeline_ends(stages, 32).front();
  for (ClockStage& stage : stages) stage.warm_up *= 2;
  EXPECT_LT(pipeline_ends(stages, 32).front(), 0.9 * shallow);
}

}  // namespace
}  // namespace heteroperf
