#include "runners/plan/search/chunk_search.hpp"

#include <algorithm>

#include "metrics/base/quantity.hpp"
#include "runners/plan/plan_cluster.hpp"
#include "runners/plan/ready/ready_plan.hpp"
#include "runners/plan/search/bounds/certificate.hpp"
#include "runners/plan/search/draft_search.hpp"
#include "runners/plan/search/plan_search.hpp"
#include "tests/unit/runners/plan/search/search_cases.hpp"
#include "workloads/models/models.hpp"

namespace heteroperf {
namespace {

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
    stage.groups = groups[draft.position_of(StageId(s)).index()];
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
      const ReadyPlan ready = ready_without_limits(problem, plan);
      const Prediction& prediction = ready.predicted();
      const DraftScore score = scorer.score(draft);
      EXPECT_NEAR(score.step_time_s, prediction.step_time_s, 1e-9 * prediction.step_time_s)
          << to_text(draft);
      EXPECT_NEAR(score.makespan_s, prediction.pipeline.makespan, 1e-9 * score.makespan_s);
      double most = 0, expected = 0;
      for (const MemoryLedger& ledger : ready.memory) {
        most = std::max(most, static_cast<double>(ledger.total().value()));
      }
      for (const StageScore& stage : score.stages) {
        expected = std::max(expected, stage.memory_bytes);
      }
      lower += expected < 0.98 * most ? 1 : 0;
    }
    // On the safe side; the ready plan has the last word.
    EXPECT_LE(lower, 2);
  }
}

PlanSearchOptions options_of(const std::vector<std::string>& schedules) {
  PlanSearchOptions options;
  options.time_limit_s = 600;
  if (!schedules.empty()) options.moves.schedules = schedules;
  return options;
}

// Stages behind a zero-bubble order make the gradients of their weights while the sample's
// gradients are on their way.
TEST(PlanBound, OneSampleLeavesGradientsOfWeightsBehind) {
  const ModelGraph graph = build_model("gpt2");
  const Cluster cluster =
      mixed_cluster({{"fast", 2, 1, 4e12, 2e10}, {"slow", 6, 1, 1e12, 2e10}}, 5e10, 5e10);
  PlanningRequest request;
  request.batch = 1;
  const GraphProblem problem(graph, cluster, request);
  const PlanSearchResult result = search_plans(problem, options_of({"1f1b", "zb-h1", "zb-h2"}));
  for (const ReadyPlan& ready : result.plans) {
    EXPECT_LE(certify(problem.task(), ready, cluster).bound.seconds, ready.predicted().step_time_s)
        << ready.plan.schedule;
  }
}

/// Four devices whose memory takes a half of the training, one link for all, four micro-batches at
/// the most: filling is what costs.
TEST(ChunkedDrafts, AreChosenWhereFewMicroBatchesFillThePipeline) {
  const ModelGraph graph = build_model("gpt2");
  const Cluster cluster = mixed_cluster({{"only", 4, 1, 4e12, 2e9}}, 5e10, 5e10);
  PlanningRequest request;
  request.batch = 4;
  const GraphProblem problem(graph, cluster, request);
  const PlanSearchResult all = search_plans(problem, options_of({}));
  const PlanSearchResult plain = search_plans(problem, options_of({"1f1b", "zb-h1", "zb-h2"}));
  // Sharing the sequences fills it too, and here better.
  const ReadyPlan& shared = all.plans.front();
  EXPECT_EQ(shared.plan.stages.front().replicas.front().part.parts, 2);
  EXPECT_LE(certify(problem.task(), shared, cluster).bound.seconds, shared.predicted().step_time_s);
  const ReadyPlan& best = *std::ranges::find_if(all.plans, [](const ReadyPlan& ready) {
    return ready.plan.stages.front().replicas.front().part.whole();
  });
  EXPECT_GT(best.plan.chunks, 1);
  EXPECT_EQ(plain.plans.front().plan.chunks, 1);
  EXPECT_LT(best.predicted().step_time_s, 0.95 * plain.plans.front().predicted().step_time_s);
  EXPECT_DOUBLE_EQ(ready_without_limits(problem, best.plan).predicted().step_time_s,
                   best.predicted().step_time_s);
  // The certificate is of this plan, and no bound of several chunks is above it.
  const PlanCertificate certificate = certify(problem.task(), best, cluster);
  EXPECT_DOUBLE_EQ(certificate.prediction.step_time_s, best.predicted().step_time_s);
  EXPECT_LE(certificate.bound.seconds, best.predicted().step_time_s);
  for (const auto& rank : certificate.memory) {
    EXPECT_LE(rank.ledger.total().value(), rank.limit.value());
  }
}

TEST(ChunkedDrafts, AreNotChosenForLittle) {
  const ModelGraph graph = build_model("gpt2");
  const Cluster cluster = mixed_cluster({{"only", 4, 1, 4e12, 2e9}}, 5e10, 5e10);
  PlanningRequest request;
  request.batch = 4;
  const GraphProblem problem(graph, cluster, request);
  PlanSearchOptions options = options_of({});
  options.moves.least_chunk_gain = 0.9;
  EXPECT_EQ(search_plans(problem, options).plans.front().plan.chunks, 1);
}

TEST(ChunkedDrafts, OneScheduleCanBeAskedFor) {
  const ModelGraph graph = build_model("gpt2");
  const Cluster cluster = mixed_cluster({{"only", 4, 1, 4e12, 2e9}}, 5e10, 5e10);
  PlanningRequest request;
  request.batch = 8;
  const GraphProblem problem(graph, cluster, request);
  for (const char* schedule : {"interleaved-1f1b", "zb-v", "v-half", "v-min"}) {
    for (const ReadyPlan& one : search_plans(problem, options_of({schedule})).plans) {
      EXPECT_EQ(one.plan.schedule, schedule);
      EXPECT_GT(one.plan.chunks, 1);
    }
  }
}

/// Every plan of several chunks, simulated.
class EveryChunkedPlan {
 public:
  explicit EveryChunkedPlan(const GraphProblem& problem)
      : problem_(problem), scorer_(problem.problem()) {
    for (const DevicePool& pool : problem.problem().pools) free_.push_back(pool.devices);
  }

  double least_step_time() {
    const std::int64_t batch = problem_.request().batch;
    for (samples_ = 1; samples_ <= batch; ++samples_) {
      if (batch % samples_ == 0) next_position();
    }
    return least_s_;
  }

 private:
  void next_position() {
    if (positions_.size() > 1) {
      for (const char* schedule : {"interleaved-1f1b", "zb-v", "v-half", "v-min"}) cut(schedule);
    }
    if (positions_.size() == 3) return;
    positions_.emplace_back();
    add_replicas(0, samples_);
    positions_.pop_back();
  }

  /// Replicas in a fixed order of pools, more samples first.
  void add_replicas(int kind, std::int64_t open) {
    if (open == 0) return next_position();
    const auto most = static_cast<int>(problem_.problem().most_samples);
    for (int k = kind; k < most * static_cast<int>(free_.size()); ++k) {
      const std::int64_t samples = most - k % most;
      int& free = free_[static_cast<std::size_t>(k / most)];
      if (samples > open || free == 0) continue;
      --free;
      const std::size_t position = positions_.size() - 1;
      positions_[position].push_back({k / most, 0, 1, samples});
      add_replicas(k, open - samples);
      positions_[position].pop_back();
      ++free;
    }
  }

  void cut(const char* schedule) {
    for (int chunks = 2; chunks <= 3; ++chunks) {
      PipelineDraft draft;
      draft.schedule = schedule;
      draft.chunks = chunks;
      draft.micro_batches = static_cast<int>(problem_.request().batch / samples_);
      draft.zero_stage = 1;
      draft.stages.resize(positions_.size() * static_cast<std::size_t>(chunks));
      if (scorer_.order_of(draft) != nullptr) next_stage(draft, 0, 0);
    }
  }

  void next_stage(PipelineDraft& draft, std::size_t s, int first) {
    const int left = static_cast<int>(draft.stages.size() - s) - 1;
    if (left < 0) return simulate_plan(draft);
    const int most = problem_.problem().layers - left;
    for (int end = left == 0 ? most : first + 1; end <= most; ++end) {
      if (end <= first) return;
      DraftStage& stage = draft.stages[s];
      stage.first = first;
      stage.end = end;
      stage.groups = ordered_groups(positions_[draft.position_of(StageId(s)).index()]);
      next_stage(draft, s + 1, end);
    }
  }

  void simulate_plan(const PipelineDraft& draft) {
    ++plans;
    least_s_ = std::min(
        least_s_, ready_without_limits(problem_, problem_.plan(draft)).predicted().step_time_s);
  }

  const GraphProblem& problem_;
  DraftScorer scorer_;
  std::vector<int> free_;
  std::vector<std::vector<ReplicaGroup>> positions_;
  std::int64_t samples_ = 1;
  double least_s_ = infinite;

 public:
  int plans = 0;
};

TEST(ChunkedDrafts, TheBestOfSmallProblemsIsFound) {
  std::mt19937_64 random(11);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  int plans = 0;
  for (int i = 0; i < 30; ++i) {
    std::vector<ClassCase> classes{{"a", 2 + below(2), 1, 1e9}};
    if (below(2) == 0) classes.push_back({"b", 1, 1, 3e8 + 1e8 * below(8)});
    const ModelGraph graph = linear_chain(2 + below(2), 16 + 8 * below(4), 16);
    const Cluster cluster = mixed_cluster(classes, 1e9, 1e8 * (1 + below(10)), 1e-7 * below(30));
    PlanningRequest request;
    constexpr std::int64_t batches[] = {2, 3, 4, 6};
    request.batch = batches[below(4)];
    request.most_samples = 2;
    const GraphProblem problem(graph, cluster, request);
    ASSERT_LE(problem.problem().layers, 6);
    EveryChunkedPlan every(problem);
    const double expected = every.least_step_time();
    plans += every.plans;
    if (expected == infinite) continue;
    double found = infinite;
    for (const ReadyPlan& plan :
         search_plans(problem, options_of({"interleaved-1f1b", "zb-v", "v-half", "v-min"})).plans) {
      if (plan.plan.chunks > 1) found = std::min(found, plan.predicted().step_time_s);
    }
    EXPECT_NEAR(found, expected, 1e-9 * expected) << i;
  }
  EXPECT_GT(plans, 3000);
}

}  // namespace
}  // namespace heteroperf
