#include "runners/plan/search/chunk_search.hpp"

#include <algorithm>
#include <limits>

#include "runners/plan/plan_check.hpp"
#include "runners/plan/plan_cluster.hpp"
#include "runners/plan/prediction.hpp"
#include "runners/plan/search/draft_search.hpp"
#include "runners/plan/search/plan_search.hpp"
#include "tests/unit/runners/plan/search/search_cases.hpp"
#include "workloads/models.hpp"

namespace heteroperf {
namespace {

constexpr double infinite = std::numeric_limits<double>::infinity();

Prediction prediction_of(const GraphProblem& problem, const Plan& plan) {
  const Cluster used = plan_cluster(plan, problem.cluster());
  const StagedGraph staged = cut_graph(problem.graph(), plan);
  const StageTimes times = stage_times(problem.graph(), staged, plan, used, Precision::fp32);
  return predict(problem.graph(), staged, plan, times, Precision::fp32, OptimizerKind::adamw);
}

/// Of any schedule of several chunks, cuts, devices and recomputation.
PipelineDraft random_chunked_draft(const PlanningProblem& problem, std::mt19937_64& random) {
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  const DraftScorer scorer(problem);
  PipelineDraft draft;
  do {
    const int positions = 2 + below(2), chunks = 2 + below(2);
    draft = PipelineDraft();
    draft.schedule = chunks == 2 ? draft_schedules()[static_cast<std::size_t>(3 + below(4))].name
                                 : "interleaved-1f1b";
    draft.chunks = chunks;
    draft.micro_batches = 1 + below(9);
    draft.zero_stage = below(2);
    draft.stages.resize(static_cast<std::size_t>(positions * chunks));
  } while (scorer.order_of(draft) == nullptr);
  std::vector<int> cuts{0, problem.layers};
  while (cuts.size() <= draft.stages.size()) {
    const int cut = 1 + below(problem.layers - 1);
    if (std::find(cuts.begin(), cuts.end(), cut) == cuts.end()) cuts.push_back(cut);
  }
  std::sort(cuts.begin(), cuts.end());
  // Two pools take a half of every micro-batch each, or the first takes all of it.
  std::vector<std::vector<ReplicaGroup>> groups;
  for (int q = 0; q < draft.positions(); ++q) {
    const bool both = below(2) == 0;
    const int degree = below(2);
    groups.push_back({{0, degree, 1, both ? 2 : 4}});
    if (both) groups.back().push_back({1, below(2), 1, 2});
  }
  for (int s = 0; s < static_cast<int>(draft.stages.size()); ++s) {
    DraftStage& stage = draft.stages[static_cast<std::size_t>(s)];
    stage.first = cuts[static_cast<std::size_t>(s)];
    stage.end = cuts[static_cast<std::size_t>(s) + 1];
    stage.recomputation = static_cast<Recomputation>(below(3));
    stage.groups = groups[static_cast<std::size_t>(draft.position_of(s))];
  }
  return draft;
}

/// By code that shares nothing but the tables and the orders of passes.
TEST(ChunkedDrafts, AgreeWithThePredictionOfTheirPlan) {
  for (const char* model : {"nano", "gpt2"}) {
    const ModelGraph graph = build_model(model);
    const Cluster cluster = mixed_cluster({{"fast", 8, 4, 4e9}, {"slow", 8, 4, 1.3e9}}, 2e9, 1e8);
    PlanningRequest request;
    request.batch = 64;
    request.most_samples = 16;
    const GraphProblem problem(graph, cluster, request);
    if (problem.problem().layers < 9) continue;
    const DraftScorer scorer(problem.problem());
    std::mt19937_64 random(3);
    int lower = 0;
    for (int i = 0; i < 40; ++i) {
      const PipelineDraft draft = random_chunked_draft(problem.problem(), random);
      const Plan plan = problem.plan(draft);
      ASSERT_EQ(problems_of([&] { check_plan(plan, graph); }), "") << to_text(draft);
      const Prediction prediction = prediction_of(problem, plan);
      const DraftScore score = scorer.score(draft);
      EXPECT_NEAR(score.step_time_s, prediction.step_time_s, 1e-9 * prediction.step_time_s)
          << to_text(draft);
      EXPECT_NEAR(score.makespan_s, prediction.pipeline.makespan, 1e-9 * score.makespan_s);
      EXPECT_DOUBLE_EQ(scorer.score(problem.draft(plan)).step_time_s, score.step_time_s);
      double most = 0, expected = 0;
      for (const MemoryLedger& ledger : prediction.memory) {
        most = std::max(most, static_cast<double>(ledger.total().value()));
      }
      for (const StageScore& stage : score.stages) {
        expected = std::max(expected, stage.memory_bytes);
      }
      lower += expected < 0.98 * most ? 1 : 0;
    }
    // On the safe side; check_plan() has the last word.
    EXPECT_LE(lower, 2);
  }
}

}  // namespace
}  // namespace heteroperf
