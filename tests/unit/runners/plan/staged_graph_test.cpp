#include "runners/plan/staged_graph.hpp"

#include "tests/unit/runners/plan/plan_cases.hpp"

namespace heteroperf {
namespace {

TEST(StagedGraph, EdgesCarryWhatCrosses) {
  const ModelGraph graph = linear_chain(3);
  const StagedGraph staged = cut_graph(graph, chain_plan(graph, {3, 4}));
  ASSERT_EQ(staged.stages(), 3);
  ASSERT_EQ(staged.edges.size(), 2u);
  EXPECT_EQ(staged.edges[0].from, StageId(0));
  EXPECT_EQ(staged.edges[0].to, StageId(1));
  EXPECT_EQ(staged.edges[0].nodes, std::vector<NodeId>{graph.find("y0")});
  EXPECT_EQ(staged.edges[0].with_gradient, staged.edges[0].nodes);
  EXPECT_EQ(staged.edges[1].nodes, std::vector<NodeId>{graph.find("y1")});
}

TEST(StagedGraph, SkipEdgesGoWithoutDetourAndDataNowhere) {
  ModelGraph graph;
  Input input;
  input.channels = 3;
  input.height = input.width = 4;
  const NodeId image = graph.add("image", input, {});
  const NodeId a = graph.add("a", Conv2d{3}, {image});
  const NodeId b = graph.add("b", Conv2d{3}, {a});
  const NodeId c = graph.add("c", Add{}, {b, a, image});
  const NodeId flat = graph.add("flat", GlobalAvgPool{}, {c});
  graph.add("loss", CrossEntropy{}, {flat});
  const StagedGraph staged = cut_graph(graph, chain_plan(graph, {2, 3}));
  ASSERT_EQ(staged.edges.size(), 3u);  // 0-1, 0-2, 1-2
  EXPECT_EQ(staged.edges[1].from, StageId(0));
  EXPECT_EQ(staged.edges[1].to, StageId(2));
  EXPECT_EQ(staged.edges[1].nodes, std::vector<NodeId>{a});
  EXPECT_EQ(staged.edges[1].with_gradient, std::vector<NodeId>{a});
}

TEST(StagedGraph, TiedHeadsAreFoundWhereTheyAreApart) {
  ModelGraph graph = linear_chain(2);
  ModelGraph tied;
  for (const Node& node : graph.nodes()) {
    Attributes attributes = node.attributes;
    if (node.name == "head") std::get<Linear>(attributes).tied_to = "x";
    tied.add(node.name, attributes, node.inputs);
  }
  const StagedGraph apart = cut_graph(tied, chain_plan(tied, {3, 4}));
  ASSERT_EQ(apart.tied.size(), 1u);
  EXPECT_EQ(apart.tied[0].owner, tied.find("x"));
  EXPECT_EQ(apart.tied[0].stages, (std::vector<StageId>{0, 2}));
  EXPECT_TRUE(cut_graph(tied, chain_plan(tied, {})).tied.empty());
}

TEST(StagedGraph, EverythingWrongIsSaidAtOnce) {
  const ModelGraph graph = linear_chain(2);
  Plan plan = chain_plan(graph, {3});
  plan.stages[0].nodes.push_back("y1");    // in both
  plan.stages[0].nodes.push_back("heat");  // unknown
  plan.stages[1].nodes.pop_back();         // the loss
  const std::string text = problems_of([&] { cut_graph(graph, plan); });
  EXPECT_TRUE(says(text, "node 'y1' is in stages 0 and 1"));
  EXPECT_TRUE(says(text, "Did you mean 'head'"));
  EXPECT_TRUE(says(text, "1 node is in no stage (loss)"));
}

TEST(StagedGraph, StagesThatCannotRunAreRefused) {
  const ModelGraph graph = linear_chain(2);
  Plan backwards = chain_plan(graph, {3});
  std::swap(backwards.stages[0].nodes, backwards.stages[1].nodes);
  EXPECT_TRUE(
      says(problems_of([&] { cut_graph(graph, backwards); }), "stages feed later ones only"));
  Plan empty = chain_plan(graph, {3});
  empty.stages.emplace_back();
  EXPECT_TRUE(says(problems_of([&] { cut_graph(graph, empty); }), "stage 2 has no nodes"));
  EXPECT_TRUE(says(problems_of([&] { cut_graph(graph, chain_plan(graph, {1})); }),
                   "stage 0 gets no gradient"));
  EXPECT_TRUE(says(problems_of([&] { cut_graph(graph, Plan()); }), "a plan without stages"));
}

}  // namespace
}  // namespace heteroperf
