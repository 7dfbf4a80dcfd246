#include "runners/plan/even_plan.hpp"

#include <algorithm>

#include "runners/plan/ready/plan_schedule.hpp"
#include "runners/plan/staged_graph.hpp"
#include "tests/unit/runners/plan/plan_cases.hpp"
#include "workloads/graph/graph_counts.hpp"
#include "workloads/models/models.hpp"

namespace heteroperf {
namespace {

double work(const ModelGraph& graph, const std::vector<NodeId>& nodes) {
  double sum = 0;
  for (const NodeId id : nodes) sum += strict_node_ops(graph, id).train().to_double();
  return sum;
}

TEST(EvenPlan, StagesOfALanguageModelAreNearlyEqualAndCutBetweenBlocks) {
  const ModelGraph graph = build_model("micro");
  EvenPlanRequest request;
  request.pipeline = 2;
  request.tensor = 2;
  request.data = 2;
  const Plan plan = even_plan(graph, request);
  EXPECT_EQ(plan.ranks(), 8);
  EXPECT_EQ(plan.graph_hash, graph.hash());
  const StagedGraph staged = cut_graph(graph, plan);
  ASSERT_EQ(staged.edges.size(), 1u);
  EXPECT_EQ(staged.edges[0].nodes.size(), 1u);
  const double first = work(graph, staged.nodes[0]), second = work(graph, staged.nodes[1]);
  EXPECT_LT(std::max(first, second) / (first + second), 0.75);
  // Tensor-parallel neighbours, then replicas, then positions.
  EXPECT_EQ(plan.stages[1].replicas[1].ranks, (std::vector<RankId>{RankId(6), RankId(7)}));
}

TEST(EvenPlan, NoOtherCutOfAChainIsMoreEven) {
  std::mt19937_64 random(7);
  for (int trial = 0; trial < 20; ++trial) {
    ModelGraph graph;
    Input input;
    input.kind = InputKind::tokens;
    input.length = 2;
    NodeId last = graph.add("x", Embedding{16, 4}, {graph.add("tokens", input, {})});
    for (int i = 0; i < 6; ++i) {
      last = graph.add("y" + std::to_string(i),
                       Linear{static_cast<std::int64_t>(1 + random() % 40), false, ""}, {last});
    }
    graph.add("loss", CrossEntropy{}, {last});
    EvenPlanRequest request;
    request.pipeline = 3;
    const StagedGraph even = cut_graph(graph, even_plan(graph, request));
    double most = 0, best = 1e300;
    for (const auto& nodes : even.nodes) most = std::max(most, work(graph, nodes));
    for (std::size_t a = 2; a < graph.nodes().size(); ++a) {
      for (std::size_t b = a + 1; b < graph.nodes().size(); ++b) {
        double one = 0;
        for (const auto& nodes : cut_graph(graph, chain_plan(graph, {a, b})).nodes) {
          one = std::max(one, work(graph, nodes));
        }
        best = std::min(best, one);
      }
    }
    EXPECT_DOUBLE_EQ(most, best);
  }
}

// Between two exchanges a tensor of each stream crosses, which is as good a place as one tensor; in
// the midst of one the rows that the second stream still reads cross too.
// Of 16 equal layers ranks of speeds 3 and 1 take 12 and 4; head and table count little.
TEST(EvenPlan, StagesMayBeAsLargeAsTheirRanksAreFast) {
  const ModelGraph graph = linear_chain(16, 64);
  EvenPlanRequest request{.pipeline = 2};
  request.speeds = {3, 1};
  const StagedGraph staged = cut_graph(graph, even_plan(graph, request));
  EXPECT_EQ(staged.nodes[0].size(), 2u + 12u);
}

TEST(EvenPlan, StreamsThatExchangeAreCutBetweenTheirBlocks) {
  const ModelGraph graph = build_model("co-attention-micro");
  for (const int pipeline : {2, 3, 4}) {
    EvenPlanRequest request;
    request.pipeline = pipeline;
    const StagedGraph staged = cut_graph(graph, even_plan(graph, request));
    double most = 0, all = 0;
    for (const auto& nodes : staged.nodes) {
      most = std::max(most, work(graph, nodes));
      all += work(graph, nodes);
    }
    EXPECT_LT(most * pipeline, 1.3 * all) << pipeline;
    for (const StageEdge& edge : staged.edges) EXPECT_LE(edge.nodes.size(), 3U) << pipeline;
  }
}

TEST(EvenPlan, EveryScheduleGetsItsPlacement) {
  const ModelGraph graph = linear_chain(16);
  for (const char* name : {"gpipe", "1f1b", "zb-h1", "zb-v", "dualpipev", "chimera", "dualpipe",
                           "interleaved-1f1b", "wave", "auto"}) {
    EvenPlanRequest request;
    request.schedule = name;
    request.pipeline = 4;
    request.data = 2;
    request.micro_batches = 8;
    const std::string text = name;
    request.chunks = text == "zb-v" || text == "dualpipev" || text == "wave" ||
                             text == "interleaved-1f1b" || text == "auto"
                         ? 2
                         : 1;
    const Plan plan = even_plan(graph, request);
    EXPECT_EQ(plan.ranks(), 8) << name;
    const Schedule schedule = plan_schedule(graph, cut_graph(graph, plan), plan);
    EXPECT_EQ(schedule.graph.ranks, 4) << name;
    EXPECT_EQ(schedule.level, ScheduleLevel::lowered);
  }
}

TEST(EvenPlan, EverythingWrongIsSaidAtOnce) {
  const ModelGraph graph = build_model("nano");
  EvenPlanRequest request;
  request.pipeline = 1000;
  request.tensor = 3;
  request.schedule = "1f1c";
  const std::string text = problems_of([&] { even_plan(graph, request); });
  EXPECT_TRUE(says(text, "tp 3 for"));
  EXPECT_TRUE(says(text, "1000 stages"));
  EXPECT_TRUE(says(text, "1f1b"));
  request = {};
  request.pipeline = 0;
  request.micro_batches = 0;
  request.zero_stage = 3;
  const std::string numbers = problems_of([&] { even_plan(graph, request); });
  EXPECT_TRUE(says(numbers, "pipeline degree"));
  EXPECT_TRUE(says(numbers, "micro-batches of 0"));
  EXPECT_TRUE(says(numbers, "ZeRO stage 3"));
  request = {};
  request.schedule = "chimera";
  request.pipeline = 3;
  EXPECT_TRUE(says(problems_of([&] { even_plan(graph, request); }), "even number of ranks"));
}

}  // namespace
}  // namespace heteroperf
