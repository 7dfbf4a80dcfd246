#include "runners/plan/layout_plan.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "metrics/base/error.hpp"
#include "runners/plan/ready/ready_plan.hpp"
#include "workloads/models/transformers.hpp"

namespace heteroperf {
namespace {

ModelGraph layout_towers() {
  return two_towers({.image = {InputKind::images, 3, 16, 16, 0},
                     .text_input = {InputKind::tokens, 0, 0, 0, 6},
                     .patch = 4,
                     .vision = {4, 32, 4},
                     .text = {2, 16, 4},
                     .vocabulary = 8,
                     .embedding = 12});
}

Plan towers_plan(const std::string& layouts, std::int64_t micro_batch = 12) {
  LayoutPlanRequest request;
  request.layouts = parse_layouts(layouts);
  request.micro_batch = micro_batch;
  request.micro_batches = 2;
  return layout_plan(layout_towers(), request);
}

/// Returns what is wrong with layouts, nothing where they are sound.
std::string refusal(const std::string& layouts, std::int64_t micro_batch = 12) {
  try {
    const Plan plan = towers_plan(layouts, micro_batch);
    ReadyPlan({layout_towers(), Precision::fp32, OptimizerKind::adamw}, plan);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

/// "0,1|2,3 4" for two replicas of two ranks and one: by stage.
std::string ranks_text(const PlanStage& stage) {
  std::string text;
  for (const StageReplica& replica : stage.replicas) {
    if (!text.empty()) text += "|";
    for (const RankId rank : replica.ranks) text += fmt::format("{} ", rank.value());
    text += fmt::format("x{}", replica.micro_batch);
  }
  return text;
}

TEST(LayoutPlan, ReadsDegreesAndRanks) {
  const Layouts layouts = parse_layouts("vision=dp2,tp3@4-9  text=pp2@7 other=tp1");
  ASSERT_EQ(layouts.size(), 3U);
  EXPECT_EQ(layouts[0].component, "vision");
  EXPECT_EQ(layouts[0].tensor, 3);
  EXPECT_EQ(layouts[0].data, 2);
  EXPECT_EQ(layouts[0].pipeline, 1);
  EXPECT_EQ(layouts[0].first_rank, 4);
  EXPECT_EQ(layouts[0].last_rank, 9);
  EXPECT_EQ(layouts[1].first_rank, 7);
  EXPECT_EQ(layouts[1].last_rank, std::nullopt);
  EXPECT_EQ(layouts[2].last_rank, std::nullopt);
  EXPECT_EQ(layouts.ranks(), 10);
  EXPECT_EQ(layouts.most_replicas(), 2);
}

TEST(LayoutPlan, ComponentsHaveDegreesOfTheirOwn) {
  const Plan shared = towers_plan("vision=dp4 text=tp2,dp2");
  ASSERT_EQ(shared.stages.size(), 2U);
  EXPECT_EQ(ranks_text(shared.stages[StageId(0)]), "0 x3|1 x3|2 x3|3 x3");
  EXPECT_EQ(ranks_text(shared.stages[StageId(1)]), "0 1 x6|2 3 x6");
  const Plan apart = towers_plan("vision=pp2,dp2@3 text=tp2@0-1 ", 5);
  ASSERT_EQ(apart.stages.size(), 3U);
  EXPECT_EQ(ranks_text(apart.stages[StageId(0)]), "3 x3|4 x2");
  EXPECT_EQ(ranks_text(apart.stages[StageId(1)]), "5 x3|6 x2");
  EXPECT_EQ(ranks_text(apart.stages[StageId(2)]), "0 1 x5");
}

TEST(LayoutPlan, PartsOfSequencesFollowTensorParallelRanks) {
  const Plan plan = towers_plan("vision=dp1@8 text=tp2,cp2,dp2");
  EXPECT_EQ(ranks_text(plan.stages[1]), "0 1 x6|2 3 x6|4 5 x6|6 7 x6");
  EXPECT_EQ(plan.stages[1].replicas[1].part, (SequencePart{1, 2}));
  EXPECT_EQ(plan.stages[1].first_sample(ReplicaId(1)), 0);
  EXPECT_EQ(plan.stages[1].first_sample(ReplicaId(3)), 6);
  EXPECT_EQ(plan.micro_batch_samples(), 12);
  EXPECT_NE(refusal("vision=dp1@8 text=tp2,cp2,dp2")
                .find("2 context-parallel ranks for sequences of 6 tokens"),
            std::string::npos);
}

// Blocks of sequences divide what pairs of chunks do not; parts of a stage have one order.
TEST(LayoutPlan, PartsOfSequencesMayBeBlocks) {
  Plan plan = towers_plan("vision=dp1@8 text=tp2,cp2,dp2");
  const auto problems = [&] {
    try {
      ReadyPlan({layout_towers(), Precision::fp32, OptimizerKind::adamw}, plan);
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  plan.stages[1].replicas[1].part.order = SequenceOrder::blocks;
  EXPECT_NE(problems().find("part 1 of 2 of its sequences"), std::string::npos) << problems();
  for (StageReplica& replica : plan.stages[1].replicas) {
    replica.part.order = SequenceOrder::blocks;
  }
  EXPECT_NE(problems().find("blocks of sequences for 'text.block0"), std::string::npos)
      << problems();
}

TEST(LayoutPlan, EveryNodeIsInAStageOfItsComponent) {
  const ModelGraph graph = layout_towers();
  const Plan plan = towers_plan("vision=pp3 text=pp2@3");
  std::size_t nodes = 0;
  for (const StageId stage : plan.stages.ids()) {
    nodes += plan.stages[stage].nodes.size();
    for (const std::string& name : plan.stages[stage].nodes) {
      EXPECT_EQ(graph.node(graph.find(name)).branch, stage.value() < 3 ? "vision" : "text") << name;
    }
  }
  EXPECT_EQ(nodes, graph.nodes().size());
  const ReadyPlan ready({graph, Precision::fp32, OptimizerKind::adamw}, plan);
  // The towers meet at the loss alone, and data cross no border.
  EXPECT_EQ(ready.staged.edges.size(), 4U);
}

// Streams that exchange after each of two blocks go in rounds, one behind each exchange and one for
// the answer; within a round neither waits for the other.
TEST(LayoutPlan, StreamsThatExchangeGoInRounds) {
  const ModelGraph graph = co_attention({.image = {InputKind::images, 3, 12, 12, 0},
                                         .text_input = {InputKind::tokens, 0, 0, 0, 6},
                                         .patch = 4,
                                         .vision = {2, 32, 4},
                                         .text = {2, 16, 4},
                                         .every = 1,
                                         .vocabulary = 8,
                                         .embedding = 10});
  const auto stages_of = [&](const std::string& layouts) {
    LayoutPlanRequest request;
    request.layouts = parse_layouts(layouts);
    request.micro_batch = 12;
    const Plan plan = layout_plan(graph, request);
    const ReadyPlan ready({graph, Precision::fp32, OptimizerKind::adamw}, plan);
    std::string text;
    for (const StageId stage : plan.stages.ids()) {
      text += graph.node(ready.staged.nodes[stage].front()).name + " " +
              ranks_text(plan.stages[stage]) + "\n";
    }
    return text;
  };
  EXPECT_EQ(stages_of("vision=dp2 text=tp2@2"),
            "vision.input 0 x6|1 x6\n"
            "text.input 2 3 x12\n"
            "vision.exchange0.attn.others_norm 0 x6|1 x6\n"
            "text.exchange0.attn.others_norm 2 3 x12\n"
            "vision.exchange1.attn.others_norm 0 x6|1 x6\n"
            "text.exchange1.attn.others_norm 2 3 x12\n"
            "text.both 2 3 x12\n");
  // A pipeline has a part of a round on each of its ranks.
  EXPECT_EQ(stages_of("vision=pp2 text=dp1@2"),
            "vision.input 0 x12\n"
            "text.input 2 x12\n"
            "vision.exchange0.attn.others_norm 0 x12\n"
            "vision.block1.attn_norm 1 x12\n"
            "text.exchange0.attn.others_norm 2 x12\n"
            "vision.exchange1.attn.others_norm 1 x12\n"
            "text.exchange1.attn.others_norm 2 x12\n"
            "text.both 2 x12\n");
}

TEST(LayoutPlan, SaysEverythingThatIsWrong) {
  const auto expect_all = [](const std::string& text, const std::vector<const char*>& parts) {
    for (const char* part : parts) {
      EXPECT_NE(text.find(part), std::string::npos) << part << " in:\n" << text;
    }
  };
  expect_all(
      refusal("vision=dp2,zz3,dp4 text=@ =tp2 text=tp0@3-1"),
      {"axis 'zz3'", "has dp twice", "axis ''", "=tp2 is no layout", "axis 'tp0'", "ranks '3-1'"});
  expect_all(refusal("vison=dp4 text=dp2@0-2 text=dp1"),
             {"no component 'vison'", "Did you mean 'vision'", "2 layouts for the component 'text'",
              "'vision' has no layout", "names 3 ranks"});
  expect_all(refusal("vision=dp5 text=dp4@0-3", 3),
             {"5 replicas of 'vision' for 3 samples", "4 replicas of 'text'"});
  expect_all(refusal("vision=dp2 text=dp2@3-4"), {"no stage names rank 2"});
  expect_all(refusal("vision=pp99 text=dp2@99"), {"99 stages for the component 'vision'"});
  expect_all(refusal("vision=dp1 text=tp3@1-3"), {"heads"});
  EXPECT_EQ(refusal("vision=dp2 text=dp2@2-3"), "");
  EXPECT_EQ(refusal("vision=dp3 text=dp2@1-2"), "");
  EXPECT_EQ(refusal("vision=dp3 text=tp2,dp2@2"), "");
}

}  // namespace
}  // namespace heteroperf
