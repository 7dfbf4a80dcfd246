// The planner's pieces: drafts scored by formula and by the exact clock (drafts per second), the
// lower bound, and the whole search on random mixed clusters.
#include <benchmark/benchmark.h>

#include <string>
#include <vector>

#include "runners/plan/search/bounds/lower_bound.hpp"
#include "runners/plan/search/draft_search.hpp"
#include "runners/plan/search/problem/graph_problem.hpp"
#include "tests/unit/runners/plan/search/random_cluster.hpp"
#include "workloads/models/models.hpp"

namespace heteroperf {
namespace {

RandomCluster range_of(int classes, int devices) {
  RandomCluster range;
  range.least_classes = range.most_classes = classes;
  range.least_devices = range.most_devices = devices;
  return range;
}

/// gpt2-xl on one cluster.
struct Case {
  explicit Case(int classes, int devices, std::int64_t per_device = 32)
      : graph(build_model("gpt2-xl")),
        cluster(range_of(classes, devices).draw(1)),
        problem(graph, cluster, request(per_device)) {}
  PlanningRequest request(std::int64_t per_device) const {
    PlanningRequest result;
    result.batch = per_device * static_cast<std::int64_t>(cluster.ranks.size());
    return result;
  }
  ModelGraph graph;
  Cluster cluster;
  GraphProblem problem;
};

/// As many stages as asked for, all of them of two groups of replicas.
PipelineDraft draft_of(const PlanningProblem& problem, int stages, int micro_batches) {
  PipelineDraft draft;
  draft.micro_batches = micro_batches;
  for (int s = 0; s < stages; ++s) {
    DraftStage stage;
    stage.first = problem.layers * s / stages;
    stage.end = problem.layers * (s + 1) / stages;
    stage.groups = {{0, 0, 4, 2}, {1, 0, 8, 1}};
    draft.stages.push_back(stage);
  }
  set_schedule(draft, "1f1b");
  return draft;
}

void estimate(benchmark::State& state) {
  const Case one(2, 512);
  const DraftScorer scorer(one.problem.problem());
  const PipelineDraft draft =
      draft_of(one.problem.problem(), static_cast<int>(state.range(0)), 128);
  for (auto _ : state) benchmark::DoNotOptimize(scorer.estimate(draft).step_time_s);
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(estimate)->Arg(1)->Arg(2)->Arg(4)->Arg(8)->Arg(16);

void exact_clock(benchmark::State& state) {
  const Case one(2, 512);
  const DraftScorer scorer(one.problem.problem());
  const PipelineDraft draft =
      draft_of(one.problem.problem(), static_cast<int>(state.range(0)), 128);
  for (auto _ : state) benchmark::DoNotOptimize(scorer.score(draft).step_time_s);
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(exact_clock)->Arg(2)->Arg(4)->Arg(8)->Arg(16);

void lower_bound(benchmark::State& state) {
  const Case one(static_cast<int>(state.range(0)), static_cast<int>(state.range(1)));
  for (auto _ : state) benchmark::DoNotOptimize(plan_bound(one.problem.problem()).seconds);
}
BENCHMARK(lower_bound)->Args({3, 512})->Args({4, 4096})->Unit(benchmark::kMillisecond);

void search(benchmark::State& state) {
  const Case one(static_cast<int>(state.range(0)), static_cast<int>(state.range(1)));
  PlanSearchOptions options;
  options.time_limit_s = 600;
  double step_s = 0;
  for (auto _ : state) {
    const SearchOutcome outcome = search_drafts(one.problem.problem(), options);
    step_s = outcome.best.front().score.step_time_s;
  }
  const double bound_s = plan_bound(one.problem.problem()).seconds;
  state.counters["gap_percent"] = 100 * (step_s / bound_s - 1);
}
BENCHMARK(search)->Args({3, 512})->Args({4, 4096})->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace heteroperf

BENCHMARK_MAIN();
