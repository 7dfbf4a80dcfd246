#include "runners/plan/search/draft_search.hpp"

#include <limits>
#include <set>
#include <string>

#include "runners/plan/search/bounds/lower_bound.hpp"
#include "tests/unit/runners/plan/search/brute_force.hpp"
#include "tests/unit/runners/plan/search/random_cluster.hpp"
#include "tests/unit/runners/plan/search/search_cases.hpp"
#include "tests/unit/runners/plan/search/small_problems.hpp"
#include "workloads/models/models.hpp"

namespace heteroperf {
namespace {

PlanSearchOptions plain_options() {
  PlanSearchOptions options;
  options.time_limit_s = 600;
  options.moves.schedules = {"1f1b"};
  options.moves.deeper_warm_ups = false;
  return options;
}

TEST(DraftSearch, FindsTheOptimumOfSmallProblems) {
  int fit = 0;
  for (std::uint64_t seed = 1; seed <= 220; ++seed) {
    const PlanningProblem problem = small_problem(seed);
    const double expected = brute_force_step_time(problem);
    if (expected == std::numeric_limits<double>::infinity()) {
      EXPECT_THROW(search_drafts(problem, plain_options()), UserError) << seed;
      continue;
    }
    ++fit;
    const SearchOutcome outcome = search_drafts(problem, plain_options());
    EXPECT_TRUE(outcome.exhaustive);
    EXPECT_NEAR(outcome.best.front().score.step_time_s, expected, 1e-9 * expected)
        << seed << ": " << to_text(outcome.best.front().draft);
    EXPECT_LE(plan_bound(problem).seconds, expected * (1 + 1e-9)) << seed;
  }
  EXPECT_GE(fit, 200);
}

/// Each constraint is at least the one before it, all are at most the optimum, and each is what
/// binds somewhere.
TEST(PlanBound, IsNeverAboveTheOptimum) {
  std::set<std::string> binding;
  double gaps = 0;
  int fit = 0, tighter = 0;
  for (std::uint64_t seed = 1001; seed <= 1240; ++seed) {
    PlanningProblem problem = small_problem(seed);
    // Memory decides in some, sums over slow links in others.
    if (seed % 3 == 1) problem.pools[0].memory_bytes *= 0.5;
    if (seed % 3 == 2) problem.master_bytes *= 20;
    const double expected = brute_force_step_time(problem);
    if (expected == std::numeric_limits<double>::infinity()) continue;
    ++fit;
    const PlanBound bound = plan_bound(problem);
    double before = 0;
    for (const PlanBound::Constraint& one : bound.constraints) {
      EXPECT_LE(one.seconds, expected * (1 + 1e-9)) << seed << ": " << one.name;
      if (one.name == "latency") continue;
      EXPECT_GE(one.seconds, before) << seed << ": " << one.name;
      before = one.seconds;
    }
    EXPECT_LE(plan_bound(problem, BoundScope::any_plan).seconds, bound.seconds);
    const double wider_s = plan_bound(problem, BoundScope::one_stage_per_position).seconds;
    EXPECT_LE(wider_s, bound.seconds);
    tighter += wider_s < 0.99 * bound.seconds ? 1 : 0;
    binding.insert(bound.binding);
    gaps += expected / bound.seconds - 1;
  }
  EXPECT_GE(fit, 200);
  EXPECT_TRUE(binding.contains("whole layers and samples"));
  EXPECT_TRUE(binding.contains("sums over replicas and optimizer"));
  EXPECT_TRUE(binding.contains("memory"));
  EXPECT_GT(tighter, 0);
  RecordProperty("mean_gap", std::to_string(gaps / fit));
  EXPECT_LE(gaps / fit, 1);
}

/// The same problem with its pools the other way round.
PlanningProblem reversed(PlanningProblem problem) {
  std::reverse(problem.pools.begin(), problem.pools.end());
  std::reverse(problem.links.begin(), problem.links.end());
  for (auto& row : problem.links) std::reverse(row.begin(), row.end());
  return problem;
}

TEST(DraftSearch, TheSameTwiceAndInAnyOrderOfPools) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const PlanningProblem problem = small_problem(seed);
    if (brute_force_step_time(problem) == std::numeric_limits<double>::infinity()) continue;
    const SearchOutcome a = search_drafts(problem, plain_options());
    const SearchOutcome b = search_drafts(problem, plain_options());
    ASSERT_EQ(a.best.size(), b.best.size());
    for (std::size_t i = 0; i < a.best.size(); ++i) EXPECT_EQ(a.best[i].draft, b.best[i].draft);
    EXPECT_EQ(a.candidates, b.candidates);
    const SearchOutcome c = search_drafts(reversed(problem), plain_options());
    EXPECT_NEAR(c.best.front().score.step_time_s, a.best.front().score.step_time_s,
                0.02 * a.best.front().score.step_time_s);
  }
}

TEST(DraftSearch, GapsOnRandomMixedClusters) {
  const ModelGraph graph = build_model("gpt2-xl");
  std::vector<double> gaps;
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    const Cluster cluster = RandomCluster().draw(seed);
    PlanningRequest request;
    request.batch = RandomCluster::batch(seed, static_cast<int>(cluster.ranks.size()));
    const GraphProblem problem(graph, cluster, request);
    PlanSearchOptions options;
    options.time_limit_s = 600;
    options.restarts = 2;
    const SearchOutcome outcome = search_drafts(problem.problem(), options);
    EXPECT_TRUE(outcome.best.front().score.fits());
    const double bound_s = plan_bound(problem.problem()).seconds;
    EXPECT_GE(outcome.best.front().score.step_time_s, bound_s);
    gaps.push_back(outcome.best.front().score.step_time_s / bound_s - 1);
  }
  std::sort(gaps.begin(), gaps.end());
  EXPECT_LE(gaps[gaps.size() / 2], 0.08);
  EXPECT_LE(gaps.back(), 0.15);
}

TEST(DraftSearch, BadInputIsNamed) {
  const auto says_of = [](PlanningProblem problem, const std::string& part) {
    return says(problems_of([&] { search_drafts(problem, plain_options()); }), part);
  };
  const PlanningProblem good = small_problem(3);
  PlanningProblem bad = good;
  for (DevicePool& pool : bad.pools) pool.devices = 0;
  EXPECT_TRUE(says_of(bad, "a cluster without devices"));
  bad = good;
  bad.pools[0].devices = 100000;
  EXPECT_TRUE(says_of(bad, "plans have up to 65536 ranks"));
  bad = good;
  bad.pools[0].times[0][0][1].forward_s = -1;
  EXPECT_TRUE(says_of(bad, "layer 1 takes -1 s on 'pool0'"));
  bad = good;
  bad.pools[0].times[1][1][0].weight_gradient_s = std::numeric_limits<double>::infinity();
  EXPECT_TRUE(says_of(bad, "takes inf s"));
  bad = good;
  bad.batch = 0;
  EXPECT_TRUE(says_of(bad, "a batch of 0 samples"));
  bad = small_problem(1);
  bad.pools.resize(1);
  bad.pools[0].devices = 4;
  bad.links = {{LinkCurve()}};
  EXPECT_TRUE(says_of(bad, "no link from 'pool0' to 'pool0'"));
}

TEST(DraftSearch, SaysWhatWouldMakeAModelFit) {
  PlanningProblem problem = small_problem(3);
  for (DevicePool& pool : problem.pools) pool.memory_bytes = 5;
  const std::string text = problems_of([&] { search_drafts(problem, plain_options()); });
  EXPECT_TRUE(says(text, "the model fits nowhere on this machine"));
  EXPECT_TRUE(says(text, "times the memory"));
}

}  // namespace
}  // namespace heteroperf
