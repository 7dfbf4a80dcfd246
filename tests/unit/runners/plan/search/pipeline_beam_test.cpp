#include "runners/plan/search/pipeline_beam.hpp"

#include <algorithm>

#include "runners/cluster/cluster.hpp"
#include "runners/plan/search/bounds/lower_bound.hpp"
#include "runners/plan/search/plan_search.hpp"
#include "tests/unit/runners/plan/search/search_cases.hpp"
#include "tests/unit/runners/plan/search/small_problems.hpp"
#include "workloads/models/models.hpp"

namespace heteroperf {
namespace {

/// Layers in order, enough samples, no device twice, every stage within the period and its memory.
void expect_sound(const PipelineDraft& draft, const DraftScorer& scorer, const FillRules& rules,
                  double period_s) {
  const PlanningProblem& problem = scorer.problem();
  std::vector<int> used(problem.pools.size(), 0);
  int first = 0;
  for (const DraftStage& stage : draft.stages) {
    EXPECT_EQ(stage.first, first);
    first = stage.end;
    EXPECT_GE(stage.samples(), rules.samples);
    EXPECT_LE(scorer.compute(stage).work_s(), period_s * (1 + 1e-6));
    for (const ReplicaGroup& group : stage.groups) {
      used[static_cast<std::size_t>(group.pool)] +=
          group.replicas * problem.degrees[static_cast<std::size_t>(group.degree)];
    }
  }
  EXPECT_EQ(first, problem.layers);
  for (std::size_t p = 0; p < used.size(); ++p) EXPECT_LE(used[p], problem.pools[p].devices);
}

TEST(PipelineBeam, PipelinesAreSoundAndShorterWithMoreTime) {
  int found = 0;
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    const PlanningProblem problem = small_problem(seed);
    const DraftScorer scorer(problem);
    const StageFiller filler(scorer);
    PipelineBeam beam(filler);
    std::vector<int> order;
    for (std::size_t p = 0; p < problem.pools.size(); ++p) order.push_back(static_cast<int>(p));
    FillRules rules;
    rules.samples = 1 + static_cast<std::int64_t>(seed % 3);
    rules.micro_batches = 4;
    std::size_t before = 0;
    for (const double period_s : {2.0, 4.0, 8.0, 16.0, 64.0}) {
      const std::optional<PipelineDraft> draft = beam.fill(order, period_s, rules);
      if (!draft) continue;
      ++found;
      expect_sound(*draft, scorer, rules, period_s);
      if (before > 0) {
        EXPECT_LE(draft->stages.size(), before + 1) << seed;
      }
      before = draft->stages.size();
    }
    EXPECT_FALSE(beam.fill(order, 1e-9, rules)) << seed;
    const bool any = beam.tighten(order, 0.1, 64, rules, [&](PipelineDraft&& draft) {
      expect_sound(draft, scorer, rules, 64);
    });
    EXPECT_EQ(any, beam.fill(order, 64, rules).has_value());
  }
  EXPECT_GT(found, 200);
}

TEST(PipelineBeam, LeavesNoDeviceIdleWhereStagesNeedUnlikeNumbers) {
  const ModelGraph graph = build_model("gpt2");
  const Cluster cluster =
      mixed_cluster({{"fast", 13, 8, 4e12}, {"slow", 22, 8, 1.5e12}}, 5e10, 5e10);
  PlanningRequest request;
  request.batch = 35 * 24;
  const GraphProblem problem(graph, cluster, request);
  PlanSearchOptions options;
  options.time_limit_s = 600;
  const SearchOutcome outcome = search_drafts(problem.problem(), options);
  int used = 0;
  for (const DraftStage& stage : outcome.best.front().draft.stages) {
    for (const ReplicaGroup& group : stage.groups) {
      used += group.replicas * problem.problem().degrees[static_cast<std::size_t>(group.degree)];
    }
  }
  EXPECT_GE(used, 34);
  EXPECT_LE(outcome.best.front().score.step_time_s, 1.1 * plan_bound(problem.problem()).seconds);
}

/// Of the mix, against the sum of every class with its own best plan of the same batch.
double predicted_efficiency(const Cluster& cluster, const ModelGraph& graph, std::int64_t batch) {
  PlanningRequest request;
  request.precision = Precision::bf16;
  request.batch = batch;
  PlanSearchOptions options;
  options.time_limit_s = 600;
  const auto step_s = [&](const Cluster& machine) {
    return search_plans(GraphProblem(graph, machine, request), options)
        .plans.front()
        .predicted()
        .step_time_s;
  };
  double sum = 0;
  for (const DeviceClass& one : cluster.classes) {
    Cluster part = cluster;
    std::erase_if(part.ranks, [&](const RankPlace& r) { return r.device_class != one.name; });
    std::erase_if(part.classes, [&](const DeviceClass& c) { return c.name != one.name; });
    std::erase_if(part.efficiency, [&](const Efficiency& e) { return e.device_class != one.name; });
    std::erase_if(part.links,
                  [&](const Link& l) { return l.from != one.name || l.to != one.name; });
    sum += 1 / step_s(part);
  }
  return 1 / step_s(cluster) / sum;
}

TEST(ShippedScenarios, AHundredDevicesOfThreeVendorsLoseLittle) {
  const ModelGraph graph = build_model("llama-13b");
  EXPECT_GE(predicted_efficiency(shipped_cluster("three_vendors_100"), graph, 4096), 0.97);
}

}  // namespace
}  // namespace heteroperf
