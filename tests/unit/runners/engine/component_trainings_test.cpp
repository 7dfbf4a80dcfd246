// Models of several components train alike whatever micro-batches and ranks hold their samples: one
// loss over a step, one number of targets that count, layouts of their own.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "metrics/base/error.hpp"
#include "runners/comm/communicator.hpp"
#include "runners/comm/world.hpp"
#include "runners/engine/module/torch_engine.hpp"
#include "runners/engine/parameters/parameter_store.hpp"
#include "runners/plan/even_plan.hpp"
#include "runners/plan/layout_plan.hpp"
#include "runners/plan/ready/ready_plan.hpp"
#include "tests/unit/runners/engine/small_trainings.hpp"
#include "workloads/models/transformers.hpp"

namespace heteroperf {
namespace {

constexpr std::int64_t step_samples = 12, evaluated = 13;

ModelGraph tiny_towers(ContrastOver over = ContrastOver::step) {
  ModelGraph towers = two_towers({.image = {InputKind::images, 3, 16, 16, 0},
                                  .text_input = {InputKind::tokens, 0, 0, 0, 6},
                                  .patch = 4,
                                  .vision = {2, 32, 4},
                                  .text = {2, 16, 4},
                                  .vocabulary = 8,
                                  .embedding = 12});
  if (over == ContrastOver::step) return towers;
  ModelGraph result;
  for (const Node& node : towers.nodes()) {
    const bool is_loss = node.name == "loss";
    result.add(node.name, is_loss ? Contrastive{over, 0.07} : node.attributes, node.inputs,
               node.branch);
  }
  return result;
}

/// Images take the first 9 places of texts, of which other numbers of tokens are targets.
ModelGraph tiny_captioner() {
  GptShape text;
  text.layers = 2;
  text.width = 16;
  text.heads = 4;
  text.vocabulary = 12;
  text.length = 15;
  return vision_language(
      {.image = {InputKind::images, 3, 12, 12, 0}, .patch = 4, .vision = {2, 32, 4}, .text = text});
}

struct ComponentsOutcome {
  std::vector<double> losses, norms;
  double evaluation = 0, accuracy = 0;
  Ops ops;  ///< of a step, on all ranks
};

ComponentsOutcome train_components(const ModelGraph& graph, Plan plan) {
  TrainingSpec spec = test::small_training(graph);
  spec.recipe.clip_norm = 0.5;
  spec.use_plan(std::move(plan));
  EXPECT_EQ(spec.plan().samples_per_step(), step_samples);
  ComponentsOutcome outcome;
  std::vector<Ops> ops(static_cast<std::size_t>(spec.plan().ranks()));
  run_on_threads(spec.plan().ranks(), {}, [&](World& world) {
    const std::unique_ptr<TrainingSession> session = start_training(spec, *world.communicator);
    ComponentsOutcome mine;
    for (int i = 0; i < 3; ++i) {
      const StepReport report = session->step();
      mine.losses.push_back(report.loss);
      mine.norms.push_back(report.gradient_norm);
    }
    const EvaluationReport evaluation = session->evaluate(evaluated);
    mine.evaluation = evaluation.loss;
    mine.accuracy = evaluation.accuracy;
    const RankId rank = world.communicator->rank();
    ops[rank.index()] = session->operations().strict;
    if (rank == RankId(0)) outcome = mine;
  });
  for (const Ops& of_rank : ops) outcome.ops += of_rank;
  return outcome;
}

ComponentsOutcome train_components(const ModelGraph& graph, const EvenPlanRequest& request) {
  return train_components(graph, even_plan(graph, request));
}

std::string name_of_plan(const EvenPlanRequest& request) {
  return fmt::format("{} p{} t{} d{} {}x{} {}", request.schedule, request.pipeline, request.tensor,
                     request.data, request.micro_batches, request.micro_batch,
                     to_string(request.recomputation));
}

void expect_same(const ComponentsOutcome& a, const ComponentsOutcome& b, const std::string& name) {
  const auto close = [&](double x, double y) {
    EXPECT_LE(std::abs(x - y), 1e-11 * std::abs(y)) << name;
  };
  for (std::size_t i = 0; i < b.losses.size(); ++i) {
    close(a.losses[i], b.losses[i]);
    close(a.norms[i], b.norms[i]);
  }
  close(a.evaluation, b.evaluation);
  EXPECT_EQ(a.accuracy, b.accuracy) << name;
}

// Each sample is held against all twelve of the step, so every plan trains as the one that has them
// in one micro-batch, and counts as many operations.
TEST(SetLoss, OverAStepEveryPlanTrainsAsOneMicroBatch) {
  const ModelGraph graph = tiny_towers();
  const ComponentsOutcome one = train_components(graph, EvenPlanRequest{.micro_batch = step_samples});
  EXPECT_NEAR(one.losses.front(), std::log(step_samples), 0.7);
  for (const EvenPlanRequest& request : {
           EvenPlanRequest{.micro_batch = 3, .micro_batches = 4},
           EvenPlanRequest{.micro_batch = 3, .micro_batches = 4, .schedule = "gpipe"},
           EvenPlanRequest{.data = 2, .micro_batch = 6},
           EvenPlanRequest{.data = 3, .micro_batch = 2, .micro_batches = 2},
           EvenPlanRequest{.pipeline = 2, .micro_batch = 3, .micro_batches = 4},
           EvenPlanRequest{
               .pipeline = 3, .micro_batch = 3, .micro_batches = 4, .schedule = "gpipe"},
           EvenPlanRequest{.pipeline = 4, .micro_batch = 4, .micro_batches = 3, .schedule = "auto"},
           EvenPlanRequest{.tensor = 2, .micro_batch = 6, .micro_batches = 2},
           EvenPlanRequest{
               .pipeline = 2, .tensor = 2, .data = 2, .micro_batch = 3, .micro_batches = 2},
           EvenPlanRequest{.pipeline = 2,
           .data = 2,
           .micro_batch = 3,
           .micro_batches = 2,
           .recomputation = Recomputation::full},
           EvenPlanRequest{.pipeline = 2,
           .micro_batch = 3,
           .micro_batches = 4,
           .recomputation = Recomputation::selective},
       }) {
    const ComponentsOutcome planned = train_components(graph, request);
    expect_same(planned, one, name_of_plan(request));
    EXPECT_EQ(planned.ops, one.ops) << name_of_plan(request);
  }
}

// A set is the micro-batch of the plan, of which replicas have parts.
TEST(SetLoss, OverAMicroBatchReplicasHoldPartsOfIt) {
  const ModelGraph graph = tiny_towers(ContrastOver::micro_batch);
  const ComponentsOutcome one =
      train_components(graph, EvenPlanRequest{.micro_batch = 4, .micro_batches = 3});
  for (const EvenPlanRequest& request : {
           EvenPlanRequest{.data = 2, .micro_batch = 2, .micro_batches = 3},
           EvenPlanRequest{.pipeline = 2, .data = 4, .micro_batch = 1, .micro_batches = 3},
       }) {
    const ComponentsOutcome planned = train_components(graph, request);
    expect_same(planned, one, name_of_plan(request));
    EXPECT_EQ(planned.ops, one.ops) << name_of_plan(request);
  }
  const ComponentsOutcome step =
      train_components(tiny_towers(), EvenPlanRequest{.micro_batch = 4, .micro_batches = 3});
  EXPECT_GT(step.losses.front(), one.losses.front() + 0.5);
}

// The mean is over the targets that count in the whole step: a replica with few of them weighs less.
TEST(CountedTargets, EveryPlanTrainsAsOneMicroBatch) {
  const ModelGraph graph = tiny_captioner();
  const ComponentsOutcome one = train_components(graph, EvenPlanRequest{.micro_batch = step_samples});
  EXPECT_NEAR(one.losses.front(), std::log(12), 0.1);
  for (const EvenPlanRequest& request : {
           EvenPlanRequest{.micro_batch = 3, .micro_batches = 4},
           EvenPlanRequest{.data = 3, .micro_batch = 4},
           EvenPlanRequest{.pipeline = 2, .data = 2, .micro_batch = 2, .micro_batches = 3},
           EvenPlanRequest{.pipeline = 4, .micro_batch = 4, .micro_batches = 3, .schedule = "auto"},
           EvenPlanRequest{.tensor = 4, .micro_batch = 6, .micro_batches = 2},
           EvenPlanRequest{.pipeline = 2,
           .tensor = 2,
           .data = 2,
           .micro_batch = 3,
           .micro_batches = 2,
           .recomputation = Recomputation::full,
           .zero_stage = 1},
       }) {
    const ComponentsOutcome planned = train_components(graph, request);
    expect_same(planned, one, name_of_plan(request));
    EXPECT_EQ(planned.ops, one.ops) << name_of_plan(request);
  }
}

// Components on the same ranks or on others, of degrees that do not divide one another, with uneven
// shares of a micro-batch.
class LayoutsOfComponents : public ::testing::TestWithParam<ModelGraph (*)()> {};

TEST_P(LayoutsOfComponents, ChangeNoTraining) {
  const ModelGraph graph = GetParam()();
  const ComponentsOutcome one = train_components(graph, EvenPlanRequest{.micro_batch = step_samples});
  for (const char* layouts : {
           "vision=dp4 text=tp2,dp2",
           "vision=tp2,dp2 text=dp4",
           "vision=tp4 text=dp4",
           "vision=dp2 text=pp2@2-3",
           "vision=dp3 text=dp2@3-4",
           "vision=tp2 text=dp3@2-4",
           "vision=pp2 text=tp2@2-3",
           "vision=dp2,pp2 text=tp2,dp2@4-7",
           "vision=dp3@2 text=tp2",
           "vision=dp1 text=dp1",
       }) {
    for (const int micro_batches : {1, 2}) {
      LayoutPlanRequest request;
      request.layouts = parse_layouts(layouts);
      request.micro_batch = step_samples / micro_batches;
      request.micro_batches = micro_batches;
      const ComponentsOutcome planned = train_components(graph, layout_plan(graph, request));
      expect_same(planned, one, fmt::format("{} in {}", layouts, micro_batches));
      EXPECT_EQ(planned.ops, one.ops) << layouts;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, LayoutsOfComponents,
                         ::testing::Values([] { return tiny_towers(); }, &tiny_captioner,
                                           [] { return with_frozen(tiny_captioner(), "vision"); },
                                           [] { return with_frozen(tiny_towers(), "text"); }));

// Frozen weights stay those of the seed, and have no part in the norm; what is behind them trains.
TEST(FrozenComponents, ChangeNothingButWhatTheyHold) {
  const ModelGraph graph = tiny_captioner();
  const EvenPlanRequest request{.micro_batch = step_samples};
  const ComponentsOutcome all = train_components(graph, request);
  for (const char* component : {"vision", "text"}) {
    const ModelGraph frozen = with_frozen(graph, component);
    const ComponentsOutcome part = train_components(frozen, request);
    EXPECT_EQ(part.losses.front(), all.losses.front()) << component;
    EXPECT_LT(part.norms.front(), all.norms.front()) << component;
    EXPECT_NE(part.losses.back(), part.losses.front()) << component;
    EXPECT_LT(part.ops, all.ops) << component;
    const ParameterStore before(frozen, Precision::fp64, 1);
    for (std::size_t n = 0; n < frozen.nodes().size(); ++n) {
      const Node& node = frozen.nodes()[n];
      if (node.parameters.empty()) continue;
      EXPECT_EQ(before.is_frozen(NodeId(n), 0), node.branch == component) << node.name;
    }
  }
}

// Only schedules that wait for a whole set can train these models.
TEST(SetLoss, ASchedulesOrderMustAllowIt) {
  const ModelGraph graph = tiny_towers();
  for (const char* schedule : {"zb-h1", "chimera"}) {
    try {
      train_components(graph,
                   {.pipeline = 2, .micro_batch = 3, .micro_batches = 4, .schedule = schedule});
      ADD_FAILURE() << schedule;
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find("interactions"), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace heteroperf
