#include "suite/planning/border_bytes.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "runners/plan/layout_plan.hpp"
#include "tests/unit/runners/plan/plan_cases.hpp"
#include "workloads/models/transformers.hpp"

namespace heteroperf {
namespace {

/// Vectors of 12 numbers for an image and a text, whose loss is the text's.
ModelGraph towers() {
  return two_towers({.image = {InputKind::images, 3, 16, 16, 0},
                     .text_input = {InputKind::tokens, 0, 0, 0, 6},
                     .patch = 4,
                     .vision = {4, 32, 4},
                     .text = {2, 16, 4},
                     .vocabulary = 8,
                     .embedding = 12});
}

std::vector<PlannedBorder> borders_of(const ModelGraph& graph, Plan plan,
                                      Precision precision = Precision::fp32) {
  const TrainingTask task{graph, precision, OptimizerKind::adamw};
  return planned_borders(graph, ReadyPlan(task, std::move(plan)), precision);
}

/// Two micro-batches of 12 samples.
Plan towers_plan(const std::string& layouts) {
  LayoutPlanRequest request;
  request.layouts = parse_layouts(layouts);
  request.micro_batch = 12;
  request.micro_batches = 2;
  return layout_plan(towers(), request);
}

std::vector<PlannedBorder> borders_of(const std::string& layouts) {
  return borders_of(towers(), towers_plan(layouts));
}

constexpr std::uint64_t vectors = 2 * 12 * 12 * 4;  // of a step's samples, in bytes

TEST(BorderBytes, EveryRankGetsWhatItNeedsAndLacks) {
  const std::vector<PlannedBorder> apart = borders_of("vision=dp2@0-1 text=tp2@2-3");
  ASSERT_EQ(apart.size(), 2u);
  // Both ranks of the text need every image's vector, whose gradient each image's rank needs once.
  EXPECT_EQ(apart[0], (PlannedBorder{"vision", 2 * vectors, 2 * vectors}));
  EXPECT_EQ(apart[1], (PlannedBorder{"text", vectors, vectors}));
}

TEST(BorderBytes, WhatARankHasIsNotSent) {
  EXPECT_EQ(borders_of("vision=dp3 text=dp3"),
            (std::vector<PlannedBorder>{{"vision", 0, 0}, {"text", 0, 0}}));
  // Of two images' ranks each has a half of what both need, and the halves of the gradient.
  EXPECT_EQ(borders_of("vision=dp2 text=tp2"),
            (std::vector<PlannedBorder>{{"vision", vectors, vectors}, {"text", 0, 0}}));
}

TEST(BorderBytes, TheFormatOfTheWireCounts) {
  Plan plan = towers_plan("vision=dp1@0 text=dp1@1");
  EXPECT_EQ(borders_of(towers(), plan).front(), (PlannedBorder{"vision", vectors, vectors}));
  plan.wires = {{StageId(0), StageId(1), WireFormat::bf16}};
  EXPECT_EQ(borders_of(towers(), plan).front(),
            (PlannedBorder{"vision", vectors / 2, vectors / 2}));
  // Every message of int8 has a scale for its 144 values.
  plan.wires = {{StageId(0), StageId(1), WireFormat::int8}};
  EXPECT_EQ(borders_of(towers(), plan).front(),
            (PlannedBorder{"vision", vectors / 4 + 2 * 4, vectors / 4}));
  EXPECT_EQ(borders_of(towers(), towers_plan("vision=dp1@0 text=dp1@1"), Precision::fp64).front(),
            (PlannedBorder{"vision", 2 * vectors, 2 * vectors}));
}

/// A tensor of one component that two stages of another take, which are on one rank or on two.
std::vector<PlannedBorder> taken_twice(RankId first, RankId second) {
  ModelGraph graph;
  Input input;
  input.kind = InputKind::tokens;
  input.length = 4;
  const NodeId tokens = graph.add("tokens", input, {}, "other");
  const NodeId made = graph.add("made", Embedding{16, 8}, {tokens}, "other");
  const NodeId once = graph.add("once", Linear{8, false, ""}, {made}, "main");
  const NodeId twice = graph.add("twice", Add{}, {once, made}, "main");
  const NodeId head = graph.add("head", Linear{16, false, ""}, {twice}, "main");
  graph.add("loss", CrossEntropy{}, {head}, "main");
  Plan plan;
  plan.schedule = "auto";
  const auto stage = [&](std::vector<std::string> nodes, RankId rank) {
    PlanStage& added = plan.stages.emplace_back();
    added.nodes = std::move(nodes);
    added.replicas.push_back({{rank}, 3, "", 0});
  };
  stage({"tokens", "made"}, RankId(0));
  stage({"once"}, first);
  stage({"twice", "head", "loss"}, second);
  return borders_of(graph, plan);
}

TEST(BorderBytes, WhatIsSentTwiceIsMoreThanTheLeast) {
  constexpr std::uint64_t tensor = 3 * 4 * 8 * 4;
  EXPECT_EQ(
      taken_twice(RankId(1), RankId(1)),
      (std::vector<PlannedBorder>{{"other", 2 * tensor, tensor}, {"main", 2 * tensor, tensor}}));
  // Two ranks need it, and each has a summand of its gradient.
  EXPECT_EQ(taken_twice(RankId(1), RankId(2)),
            (std::vector<PlannedBorder>{{"other", 2 * tensor, 2 * tensor},
                                        {"main", 2 * tensor, 2 * tensor}}));
}

TEST(BorderBytes, AFrozenComponentGetsNoGradient) {
  const ModelGraph graph = with_frozen(towers(), "vision");
  Plan plan = towers_plan("vision=dp1@0 text=dp1@1");
  plan.graph_hash.clear();
  const std::vector<PlannedBorder> borders = borders_of(graph, plan);
  EXPECT_EQ(borders, (std::vector<PlannedBorder>{{"vision", vectors, vectors}, {"text", 0, 0}}));
}

TEST(BorderBytes, AModelOfOneComponentHasNone) {
  const ModelGraph graph = linear_chain(4);
  EXPECT_TRUE(borders_of(graph, chain_plan(graph, {3, 7})).empty());
}

}  // namespace
}  // namespace heteroperf
