#include "runners/engine/parameters/rank_share.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "metrics/base/error.hpp"
#include "workloads/models/transformers.hpp"

namespace heteroperf {
namespace {

ModelGraph tied_gpt() {
  GptShape shape;
  shape.layers = 2;
  shape.width = 16;
  shape.heads = 4;
  shape.vocabulary = 21;
  shape.length = 8;
  shape.head = HeadKind::tied;
  return gpt(shape);
}

/// Stages that begin at these nodes, with these tensor-parallel degrees, on ranks of their own.
Plan make_plan(const ModelGraph& graph, const std::vector<std::string>& begins,
               const std::vector<int>& degrees) {
  Plan plan;
  int rank = 0;
  for (const Node& node : graph.nodes()) {
    const bool begins_one = std::find(begins.begin(), begins.end(), node.name) != begins.end();
    if (plan.stages.empty() || begins_one) {
      PlanStage& stage = plan.stages.emplace_back();
      StageReplica& replica = stage.replicas.emplace_back();
      for (int i = 0; i < degrees.at(plan.stages.size() - 1); ++i) {
        replica.ranks.emplace_back(rank++);
      }
    }
    plan.stages.back().nodes.push_back(node.name);
  }
  return plan;
}

const HeldParameter* find(const RankShare& share, NodeId node, std::size_t index) {
  const HeldParameter* found = nullptr;
  for (const HeldParameter& held : share.parameters) {
    if (held.node != node || held.index != index) continue;
    EXPECT_EQ(found, nullptr) << "held twice";
    found = &held;
  }
  return found;
}

TEST(RankShare, OfOneRankIsTheModel) {
  const ModelGraph graph = tied_gpt();
  const Plan plan = make_plan(graph, {}, {1});
  const RankShare share = rank_share(graph, cut_graph(graph, plan), plan, {0, {{0, 0, 0, 0}}});
  ASSERT_EQ(share.parts.size(), 1u);
  ASSERT_EQ(share.shards.size(), 1u);
  EXPECT_EQ(share.parts[0].nodes.size(), graph.nodes().size());
  EXPECT_EQ(share.shards[0].graph.hash(), graph.hash());
  std::uint64_t elements = 0;
  for (const HeldParameter& held : share.parameters) {
    EXPECT_TRUE(held.shard.whole());
    EXPECT_EQ(held.part, 0u);
    EXPECT_EQ(held.shape, graph.node(held.node).parameters[held.index].shape);
    elements += static_cast<std::uint64_t>(element_count(held.shape));
  }
  EXPECT_EQ(elements, graph.parameter_count());
}

TEST(RankShare, HoldsWhatItsStageUses) {
  const ModelGraph graph = tied_gpt();
  const Plan plan = make_plan(graph, {"block1.attn_norm"}, {1, 2});
  const StagedGraph staged = cut_graph(graph, plan);
  const RankShare share = rank_share(graph, staged, plan, {1, {{1, 1, 0, 1}}});
  ASSERT_EQ(share.shards.size(), 1u);
  EXPECT_EQ(share.shards[0].degree, 2);
  EXPECT_EQ(share.shards[0].index, 1);
  EXPECT_EQ(find(share, graph.find("block0.attn.qkv"), 0), nullptr);
  const HeldParameter* up = find(share, graph.find("block1.mlp.up"), 0);
  ASSERT_NE(up, nullptr);
  EXPECT_EQ(up->shape, (Shape{32, 16}));
  EXPECT_EQ(up->shard, (ParameterShard{0, {{32, 32}}}));
  const NodeId down = graph.find("block1.mlp.down");
  EXPECT_NE(find(share, down, 0), nullptr);
  EXPECT_EQ(find(share, down, 1), nullptr);  // its bias is index 0's
  const HeldParameter* table = find(share, graph.find("embedding"), 0);
  ASSERT_NE(table, nullptr);  // of the tied head
  EXPECT_EQ(table->shape, (Shape{11, 16}));
  EXPECT_EQ(table->shard, (ParameterShard{0, {{10, 11}}}));
}

TEST(RankShare, HoldsAWeightOfTwoPartsOnce) {
  const ModelGraph graph = tied_gpt();
  const Plan plan =
      make_plan(graph, {"block0.mlp_norm", "block1.attn_norm", "block1.mlp_norm"}, {2, 2, 2, 2});
  const StagedGraph staged = cut_graph(graph, plan);
  const RankShare share = rank_share(graph, staged, plan, {0, {{0, 0, 0, 0}, {3, 3, 0, 0}}});
  ASSERT_EQ(share.parts.size(), 2u);
  EXPECT_EQ(share.shards.size(), 1u);
  const HeldParameter* table = find(share, graph.find("embedding"), 0);
  ASSERT_NE(table, nullptr);
  EXPECT_EQ(table->part, 0u);
  EXPECT_EQ(find(share, graph.find("final_norm"), 0)->part, 1u);
}

TEST(RankShare, KeepsOneShardPerDegree) {
  const ModelGraph graph = tied_gpt();
  const Plan plan = make_plan(graph, {"block0.mlp_norm", "block1.mlp_norm"}, {1, 2, 1});
  const StagedGraph staged = cut_graph(graph, plan);
  const RankShare share =
      rank_share(graph, staged, plan, {0, {{0, 0, 0, 0}, {1, 1, 0, 1}, {2, 2, 0, 0}}});
  EXPECT_EQ(share.shards.size(), 2u);
  EXPECT_EQ(share.parts[0].shard, share.parts[2].shard);
  EXPECT_NE(share.parts[0].shard, share.parts[1].shard);
}

TEST(RankShare, RefusesTwoPartsOfOneWeightOnOneRank) {
  const ModelGraph graph = tied_gpt();
  const Plan plan = make_plan(graph, {"block1.attn_norm"}, {1, 2});
  const StagedGraph staged = cut_graph(graph, plan);
  EXPECT_THROW(rank_share(graph, staged, plan, {0, {{0, 0, 0, 0}, {1, 1, 0, 1}}}), UserError);
}

}  // namespace
}  // namespace heteroperf
