// Context-parallel ranks, each with a part of every sequence, train as one rank does.
#include <gtest/gtest.h>

#include <string>
#include <variant>
#include <vector>

#include "metrics/base/error.hpp"
#include "runners/plan/even_plan.hpp"
#include "runners/plan/layout_plan.hpp"
#include "runners/plan/ready/ready_plan.hpp"
#include "suite/planning/border_bytes.hpp"
#include "tests/unit/runners/engine/component_cases.hpp"
#include "tests/unit/runners/engine/small_trainings.hpp"
#include "workloads/graph/graph_counts.hpp"

namespace heteroperf {
namespace {

using test::ComponentsOutcome;
using test::expect_same;
using test::step_samples;
using test::train_components;

/// Every position attends to all others.
ModelGraph without_masks(const ModelGraph& graph) {
  ModelGraph result;
  for (const Node& node : graph.nodes()) {
    Attributes attributes = node.attributes;
    if (auto* attention = std::get_if<Attention>(&attributes)) attention->causal = false;
    result.add(node.name, attributes, node.inputs, node.branch);
  }
  return result;
}

class PartsOfSequences : public ::testing::TestWithParam<ModelGraph (*)()> {};

// Keys and values go round, gradients are summed over parts as over replicas, and every
// operation is done once.
TEST_P(PartsOfSequences, ChangeNoTraining) {
  const ModelGraph graph = GetParam()();
  const ComponentsOutcome one =
      train_components(graph, EvenPlanRequest{.micro_batch = step_samples});
  for (const EvenPlanRequest& request : {
           EvenPlanRequest{.context = 2, .micro_batch = 12},
           EvenPlanRequest{.context = 4, .micro_batch = 4, .micro_batches = 3},
           EvenPlanRequest{.tensor = 2, .context = 2, .data = 2, .micro_batch = 6},
           EvenPlanRequest{.tensor = 2,
           .context = 2,
           .micro_batch = 6,
           .micro_batches = 2,
           .sequence_parallel = true},
           EvenPlanRequest{.pipeline = 2,
           .context = 2,
           .micro_batch = 3,
           .micro_batches = 4,
           .recomputation = Recomputation::selective},
           EvenPlanRequest{.pipeline = 2,
           .context = 2,
           .data = 2,
           .micro_batch = 2,
           .micro_batches = 3,
           .recomputation = Recomputation::full,
           .zero_stage = 1},
           EvenPlanRequest{.pipeline = 2,
           .context = 2,
           .micro_batch = 3,
           .micro_batches = 4,
           .schedule = "zb-h1"},
       }) {
    const ComponentsOutcome planned = train_components(graph, request);
    expect_same(planned, one, test::name_of_plan(request));
    EXPECT_EQ(planned.ops, one.ops) << test::name_of_plan(request);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, PartsOfSequences,
                         ::testing::Values([] { return test::tiny_gpt(); }, &test::tiny_llama,
                                           [] { return without_masks(test::tiny_gpt()); }));

// Pictures are whole on all ranks that share their text, and so is the gradient of their rows.
TEST(PartsOfSequences, TakeRowsOfPictures) {
  const ModelGraph graph = test::tiny_captioner();
  const ComponentsOutcome one =
      train_components(graph, EvenPlanRequest{.micro_batch = step_samples});
  for (const char* layouts : {
           "vision=dp2 text=cp2",
           "vision=tp2 text=cp3@2-4",
           "vision=dp3 text=tp2,cp2,dp2@3-10",
           "vision=pp2 text=cp2,pp2@2-5",
           "vision=dp4 text=cp2,dp2",
       }) {
    LayoutPlanRequest request;
    request.layouts = parse_layouts(layouts);
    request.micro_batch = step_samples / 2;
    request.micro_batches = 2;
    const ComponentsOutcome planned = train_components(graph, layout_plan(graph, request));
    expect_same(planned, one, layouts);
    EXPECT_EQ(planned.ops, one.ops) << layouts;
  }
  // In one stage with the text, every rank repeats what makes the rows.
  for (const int data : {1, 2}) {
    EvenPlanRequest request{.context = 2, .data = data, .micro_batch = step_samples / 2};
    request.micro_batches = 2 / data;
    request.zero_stage = data - 1;
    const ComponentsOutcome planned = train_components(graph, request);
    expect_same(planned, one, test::name_of_plan(request));
    EXPECT_EQ(planned.ops, one.ops) << test::name_of_plan(request);
  }
}

struct PartedPictures {
  ModelGraph (*graph)();
  std::vector<const char*> layouts;
};
class PartsOfPictures : public ::testing::TestWithParam<PartedPictures> {};

// Ranks share the rows of pictures, also where these are no multiple of their number; a row that is
// pooled goes to the first of them, wherever it was.
TEST_P(PartsOfPictures, ChangeNoTraining) {
  const ModelGraph graph = GetParam().graph();
  const ComponentsOutcome one =
      train_components(graph, EvenPlanRequest{.micro_batch = step_samples});
  // Borders of samples with any number of images are planned for the most.
  const bool ragged = items_of_samples(graph).has_value();
  int i = 0;
  for (const char* layouts : GetParam().layouts) {
    LayoutPlanRequest request;
    request.layouts = parse_layouts(layouts);
    request.micro_batches = 1 + i % 3;
    request.micro_batch = step_samples / request.micro_batches;
    request.recomputation = static_cast<Recomputation>(i++ % 3);
    request.zero_stage = i % 2;
    const Plan plan = layout_plan(graph, request);
    const ComponentsOutcome planned = train_components(graph, plan);
    expect_same(planned, one, layouts);
    EXPECT_EQ(planned.ops, one.ops) << layouts;
    EXPECT_EQ(planned.component_ops, one.component_ops) << layouts;
    const ReadyPlan ready({graph, Precision::fp64, OptimizerKind::adamw}, plan);
    const auto borders = planned_borders(graph, ready, Precision::fp64);
    for (std::size_t c = 0; c < borders.size() && !ragged; ++c) {
      EXPECT_EQ(planned.border_bytes[c], borders[c].planned_bytes) << layouts;
      EXPECT_EQ(borders[c].least_bytes, borders[c].planned_bytes) << layouts;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, PartsOfPictures,
    ::testing::Values(
        PartedPictures{[] { return test::tiny_towers(); },
                       {"vision=cp2 text=dp2", "vision=dp2 text=cp3@2", "vision=cp4 text=cp3@4",
                        "vision=tp2,cp2 text=tp4", "vision=cp3,dp2,pp2 text=tp2,cp3",
                        "vision=tp2,cp2 text=cp3,pp2@4", "vision=cp2 text=cp3,dp2@1"}},
        PartedPictures{[] { return with_frozen(test::tiny_towers(), "vision"); },
                       {"vision=cp2 text=cp3@2"}},
        PartedPictures{
            &test::tiny_captioner,
            {"vision=cp2 text=dp2", "vision=cp4 text=cp2,dp2", "vision=cp2,pp2 text=cp3@4",
             "vision=tp2,cp3 text=tp2@6", "vision=cp2,dp2 text=tp2,cp2"}},
        PartedPictures{[] { return with_frozen(test::tiny_captioner(), "text"); },
                       {"vision=cp2 text=cp2@2"}},
        PartedPictures{&test::tiny_streams,
                       {"vision=cp2 text=dp2", "vision=dp2 text=cp3@2", "vision=cp2 text=cp3@2",
                        "vision=tp2,cp2 text=tp2,cp3@4", "vision=cp2,dp2 text=cp3,dp2@4",
                        "vision=cp2,dp3 text=cp3,dp2"}},
        PartedPictures{[] { return with_frozen(test::tiny_streams(), "vision"); },
                       {"vision=cp2 text=cp3@2"}},
        PartedPictures{
            [] { return test::tiny_album(); },
            {"vision=cp2 text=dp2", "vision=cp2,dp2 text=cp2@4", "vision=cp3 text=tp2@3"}}));

// One stage has the whole of a classifier: its loss is on the ranks with the first parts.
TEST(PartsOfPictures, AClassifierTrainsAsOneRank) {
  const ModelGraph graph = test::tiny_vit();
  const ComponentsOutcome one =
      train_components(graph, EvenPlanRequest{.micro_batch = step_samples});
  for (const EvenPlanRequest& request : {
           EvenPlanRequest{.context = 2, .micro_batch = 12},
           EvenPlanRequest{.context = 3, .data = 2, .micro_batch = 3, .micro_batches = 2},
           EvenPlanRequest{.pipeline = 2,
           .tensor = 2,
           .context = 2,
           .micro_batch = 3,
           .micro_batches = 4,
           .schedule = "zb-h1"},
       }) {
    const ComponentsOutcome planned = train_components(graph, request);
    expect_same(planned, one, test::name_of_plan(request));
    EXPECT_EQ(planned.ops, one.ops) << test::name_of_plan(request);
  }
}

std::string problems_of_context(const ModelGraph& graph, int context) {
  try {
    train_components(graph, EvenPlanRequest{.context = context, .micro_batch = step_samples});
  } catch (const UserError& error) {
    return error.what();
  }
  return "none";
}

TEST(PartsOfSequences, AreRefusedWhereSomethingNeedsWholeOnes) {
  const auto expect = [](const ModelGraph& graph, int context, const char* words) {
    const std::string problems = problems_of_context(graph, context);
    EXPECT_NE(problems.find(words), std::string::npos) << problems;
  };
  expect(test::tiny_gpt(), 3, "3 context-parallel ranks for sequences of 16 tokens");
  expect(test::tiny_gpt(0.1), 2, "2 context-parallel ranks cannot share 'block0.drop");
  expect(test::tiny_towers(), 2, "2 context-parallel ranks for sequences of 6 tokens");
  expect(test::tiny_towers(), 3, "3 context-parallel ranks cannot share 'vision.");
  expect(test::tiny_streams(), 3, "3 context-parallel ranks cannot share");
  expect(test::tiny_vit(), 18, "18 context-parallel ranks for the 17 rows of 'positions'");
  expect(test::tiny_cnn(), 2, "2 context-parallel ranks cannot share");
}

// Blocks of a picture's rows look like those of a text.
TEST(PartsOfSequences, AreNotThoseOfPictures) {
  const ModelGraph graph = test::tiny_captioner();
  LayoutPlanRequest request;
  request.layouts = parse_layouts("vision=dp2,pp2 text=dp1@4");
  request.micro_batch = step_samples;
  Plan plan = layout_plan(graph, request);
  for (const ReplicaId r : plan.stages[1].replicas.ids()) {
    plan.stages[1].replicas[r].micro_batch = step_samples;
    plan.stages[1].replicas[r].part = {r.value(), 2};
  }
  try {
    ReadyPlan({graph, Precision::fp64, OptimizerKind::adamw}, plan);
    ADD_FAILURE();
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("cannot share 'vision."), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace heteroperf
