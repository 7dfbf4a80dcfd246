// Models of several components train alike whatever micro-batches and ranks hold their samples: one
// loss over a step, one number of targets that count, layouts of their own.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "metrics/base/error.hpp"
#include "runners/comm/communicator.hpp"
#include "runners/comm/world.hpp"
#include "runners/engine/checkpoint/checkpoint.hpp"
#include "runners/engine/module/torch_engine.hpp"
#include "runners/engine/parameters/parameter_store.hpp"
#include "runners/plan/even_plan.hpp"
#include "runners/plan/layout_plan.hpp"
#include "runners/plan/ready/ready_plan.hpp"
#include "suite/planning/border_bytes.hpp"
#include "tests/unit/runners/engine/exact_parity.hpp"
#include "tests/unit/runners/engine/small_trainings.hpp"
#include "workloads/data/step_samples.hpp"
#include "workloads/graph/graph_counts.hpp"
#include "workloads/models/models.hpp"
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
  text.length = 24;
  return vision_language(
      {.image = {InputKind::images, 3, 12, 12, 0}, .patch = 4, .vision = {2, 32, 4}, .text = text});
}

/// The same with any number of images from none to three, whose rows take 27 places.
ModelGraph tiny_album(double dropout = 0) {
  GptShape text;
  text.layers = 2;
  text.width = 16;
  text.heads = 4;
  text.vocabulary = 12;
  text.length = 32;
  text.dropout = dropout;
  return vision_language({.image = {InputKind::images, 3, 12, 12, 0, 3},
                          .patch = 4,
                          .vision = {2, 32, 4},
                          .text = text});
}

/// Two streams of unlike widths with two exchanges.
ModelGraph tiny_streams() {
  return co_attention({.image = {InputKind::images, 3, 12, 12, 0},
                       .text_input = {InputKind::tokens, 0, 0, 0, 6},
                       .patch = 4,
                       .vision = {2, 32, 4},
                       .text = {2, 16, 4},
                       .every = 1,
                       .vocabulary = 8,
                       .embedding = 10});
}

struct ComponentsOutcome {
  std::vector<double> losses, norms;
  double evaluation = 0, accuracy = 0;
  Ops ops;                         ///< of a step, on all ranks
  std::vector<Ops> component_ops;  ///< the same by component
  std::vector<std::uint64_t> border_bytes;
};

/// A rank's components are all that it does in its passes; adds them to those of other ranks. Of a
/// model of one component nothing is told apart.
void expect_components_add_up(const ModelGraph& graph, const StepOperations& operations,
                              const StepReport& report, ComponentsOutcome& outcome) {
  if (components_of(graph).size() == 1) {
    EXPECT_TRUE(operations.components.empty());
    return;
  }
  outcome.component_ops.resize(2);
  outcome.border_bytes.resize(2);
  ASSERT_EQ(operations.components.size(), 2u);
  ASSERT_EQ(report.components.size(), 2u);
  StepOperations sum;
  double compute_s = 0;
  for (std::size_t i = 0; i < 2; ++i) {
    const StepOperations& part = operations.components[i];
    sum.add(part);
    const double part_s = report.components[i].compute_s.value();
    // Norms take time and have no operations.
    EXPECT_TRUE(part_s > 0 || part.strict + part.recompute == Ops()) << "component " << i;
    compute_s += part_s;
    outcome.component_ops[i] += part.strict;
    outcome.border_bytes[i] += report.components[i].border_bytes;
  }
  EXPECT_EQ(sum.strict, operations.strict);
  EXPECT_EQ(sum.recompute, operations.recompute);
  EXPECT_LE(compute_s, report.split.compute_s * (1 + 1e-9));
}

ComponentsOutcome train_components(const ModelGraph& graph, Plan plan) {
  TrainingSpec spec = test::small_training(graph);
  spec.recipe.clip_norm = 0.5;
  spec.use_plan(std::move(plan));
  EXPECT_EQ(spec.plan().samples_per_step(), step_samples);
  ComponentsOutcome outcome;
  std::vector<StepOperations> operations(spec.plan().ranks());
  std::vector<StepReport> last(operations.size());
  run_on_threads(spec.plan().ranks(), {}, [&](World& world) {
    const std::unique_ptr<TrainingSession> session = start_training(spec, *world.communicator);
    ComponentsOutcome mine;
    for (int i = 0; i < 3; ++i) {
      const StepReport report = session->step();
      mine.losses.push_back(report.loss);
      mine.norms.push_back(report.gradient_norm);
      last[world.communicator->rank().index()] = report;
    }
    const EvaluationReport evaluation = session->evaluate(evaluated);
    mine.evaluation = evaluation.loss;
    mine.accuracy = evaluation.accuracy;
    const RankId rank = world.communicator->rank();
    operations[rank.index()] = session->operations();
    if (rank == RankId(0)) outcome = mine;
  });
  for (std::size_t rank = 0; rank < operations.size(); ++rank) {
    outcome.ops += operations[rank].strict;
    expect_components_add_up(graph, operations[rank], last[rank], outcome);
  }
  return outcome;
}

ComponentsOutcome train_components(const ModelGraph& graph, const EvenPlanRequest& request) {
  return train_components(graph, even_plan(graph, request));
}

std::string name_of_plan(const EvenPlanRequest& request) {
  return fmt::format("{} p{} t{} c{} d{} {}x{} {}", request.schedule, request.pipeline,
                     request.tensor, request.context, request.data, request.micro_batches,
                     request.micro_batch, to_string(request.recomputation));
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
  const ComponentsOutcome one =
      train_components(graph, EvenPlanRequest{.micro_batch = step_samples});
  // Vectors of few features are not equally unlike at first.
  EXPECT_GT(one.losses.front(), std::log(step_samples) / 2);
  EXPECT_LT(one.losses.front(), std::log(step_samples) * 3);
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

// The mean is over the targets that count in the whole step: a replica with few of them weighs
// less.
TEST(CountedTargets, EveryPlanTrainsAsOneMicroBatch) {
  const ModelGraph graph = tiny_captioner();
  const ComponentsOutcome one =
      train_components(graph, EvenPlanRequest{.micro_batch = step_samples});
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

// Rows of each stream go to the other one, whatever holds them, and gradients come back.
TEST(Exchanges, EveryPlanTrainsAsOneMicroBatch) {
  const ModelGraph graph = tiny_streams();
  const ComponentsOutcome one =
      train_components(graph, EvenPlanRequest{.micro_batch = step_samples});
  EXPECT_NEAR(one.losses.front(), std::log(2), 0.01);
  for (const EvenPlanRequest& request : {
           EvenPlanRequest{.micro_batch = 3, .micro_batches = 4},
           EvenPlanRequest{.data = 3, .micro_batch = 4},
           EvenPlanRequest{.pipeline = 2, .data = 2, .micro_batch = 2, .micro_batches = 3},
           EvenPlanRequest{.pipeline = 5, .micro_batch = 4, .micro_batches = 3, .schedule = "auto"},
           EvenPlanRequest{.pipeline = 2,
           .chunks = 2,
           .micro_batch = 3,
           .micro_batches = 4,
           .schedule = "zb-v"},
           EvenPlanRequest{.tensor = 4, .micro_batch = 6, .micro_batches = 2},
           EvenPlanRequest{
               .tensor = 2, .micro_batch = 6, .micro_batches = 2, .sequence_parallel = true},
           EvenPlanRequest{.pipeline = 2,
           .tensor = 2,
           .data = 2,
           .micro_batch = 3,
           .micro_batches = 2,
           .recomputation = Recomputation::selective},
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

// The tensors that streams keep for each other are those of the ledger.
TEST(Exchanges, ARankHoldsWhatTheLedgerSays) {
  ModelGraph graph = build_model("co-attention-nano");
  for (const Recomputation again : {Recomputation::none, Recomputation::selective}) {
    TrainingSpec spec = test::small_training(graph, Precision::fp32);
    spec.use_plan(even_plan(
        graph, {.pipeline = 2, .micro_batch = 32, .micro_batches = 3, .recomputation = again}));
    std::vector<double> peaks(2);
    run_on_threads(2, {}, [&](World& world) {
      const std::unique_ptr<TrainingSession> session = start_training(spec, *world.communicator);
      for (int step = 0; step < 3; ++step) session->step();
      peaks[world.communicator->rank().index()] = static_cast<double>(session->memory().peak_bytes);
    });
    for (std::size_t rank = 0; rank < peaks.size(); ++rank) {
      const auto planned = static_cast<double>(spec.ready->memory[rank].total().value());
      EXPECT_NEAR(peaks[rank] / planned, 1.0, 0.05) << rank << " " << to_string(again);
    }
  }
}

// Also where a rank has some of the stages of its position.
TEST(LayoutsOfSomeCommonRanks, ARankHoldsWhatTheLedgerSays) {
  const ModelGraph graph = build_model("vlm-nano");
  LayoutPlanRequest request;
  request.layouts = parse_layouts("vision=dp2 text=tp2@1-2");
  request.micro_batch = 32;
  request.micro_batches = 2;
  TrainingSpec spec = test::small_training(graph, Precision::fp32);
  spec.use_plan(layout_plan(graph, request));
  std::vector<double> peaks(3);
  run_on_threads(3, {}, [&](World& world) {
    const std::unique_ptr<TrainingSession> session = start_training(spec, *world.communicator);
    for (int step = 0; step < 3; ++step) session->step();
    peaks[world.communicator->rank().index()] = static_cast<double>(session->memory().peak_bytes);
  });
  for (std::size_t rank = 0; rank < peaks.size(); ++rank) {
    const auto planned = static_cast<double>(spec.ready->memory[rank].total().value());
    EXPECT_NEAR(peaks[rank] / planned, 1.0, 0.1) << rank;
  }
}

// Components on the same ranks or on others, of degrees that do not divide one another, with uneven
// shares of a micro-batch.
class LayoutsOfComponents : public ::testing::TestWithParam<ModelGraph (*)()> {};

TEST_P(LayoutsOfComponents, ChangeNoTraining) {
  const ModelGraph graph = GetParam()();
  const ComponentsOutcome one =
      train_components(graph, EvenPlanRequest{.micro_batch = step_samples});
  int micro_batches = 2;
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
           "vision=dp3 text=tp2",
           "vision=tp2,dp2 text=dp3@1",
           "vision=dp2,pp2 text=tp2,dp2@3",
           "vision=dp1 text=dp1",
       }) {
    micro_batches = 3 - micro_batches;  // one and two in turn
    LayoutPlanRequest request;
    request.layouts = parse_layouts(layouts);
    request.micro_batch = step_samples / micro_batches;
    request.micro_batches = micro_batches;
    const Plan plan = layout_plan(graph, request);
    const ComponentsOutcome planned = train_components(graph, plan);
    expect_same(planned, one, fmt::format("{} in {}", layouts, micro_batches));
    EXPECT_EQ(planned.ops, one.ops) << layouts;
    EXPECT_EQ(planned.component_ops, one.component_ops) << layouts;
    const ReadyPlan ready({graph, Precision::fp64, OptimizerKind::adamw}, plan);
    const auto borders = planned_borders(graph, ready, Precision::fp64);
    ASSERT_EQ(borders.size(), 2U);
    for (std::size_t i = 0; i < borders.size(); ++i) {
      EXPECT_EQ(planned.border_bytes[i], borders[i].planned_bytes) << layouts;
      EXPECT_EQ(borders[i].least_bytes, borders[i].planned_bytes) << layouts;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, LayoutsOfComponents,
                         ::testing::Values([] { return tiny_towers(); }, &tiny_captioner,
                                           &tiny_streams,
                                           [] { return with_frozen(tiny_streams(), "vision"); },
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

// Keys and values are gathered, gradients are summed over parts as over replicas, and every
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
    expect_same(planned, one, name_of_plan(request));
    EXPECT_EQ(planned.ops, one.ops) << name_of_plan(request);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, PartsOfSequences,
                         ::testing::Values([] { return test::tiny_gpt(); }, &test::tiny_llama,
                                           [] { return without_masks(test::tiny_gpt()); }));

// Pictures are whole on all ranks that share their text, and so is the gradient of their rows.
TEST(PartsOfSequences, TakeRowsOfPictures) {
  const ModelGraph graph = tiny_captioner();
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
    expect_same(planned, one, name_of_plan(request));
    EXPECT_EQ(planned.ops, one.ops) << name_of_plan(request);
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
  expect(tiny_towers(), 2, "2 context-parallel ranks cannot share");
  expect(test::tiny_cnn(), 2, "2 context-parallel ranks cannot share");
}

// Blocks of a picture's rows look like those of a text.
TEST(PartsOfSequences, AreNotThoseOfPictures) {
  const ModelGraph graph = tiny_captioner();
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

// Samples have from none to three images: micro-batches and replicas have unlike numbers of them,
// some none at all.
class AnyNumberOfImages : public ::testing::TestWithParam<ModelGraph (*)()> {};

TEST_P(AnyNumberOfImages, EveryPlanTrainsAsOneMicroBatch) {
  const ModelGraph graph = GetParam()();
  const ComponentsOutcome one =
      train_components(graph, EvenPlanRequest{.micro_batch = step_samples});
  for (const EvenPlanRequest& request : {
           EvenPlanRequest{.micro_batch = 1, .micro_batches = 12},
           EvenPlanRequest{.data = 3, .micro_batch = 4},
           EvenPlanRequest{.data = 12, .micro_batch = 1, .zero_stage = 1},
           EvenPlanRequest{.pipeline = 2, .data = 2, .micro_batch = 1, .micro_batches = 6},
           EvenPlanRequest{
               .pipeline = 4, .micro_batch = 1, .micro_batches = 12, .schedule = "zb-h1"},
           EvenPlanRequest{.tensor = 4, .micro_batch = 2, .micro_batches = 6},
           EvenPlanRequest{
               .tensor = 2, .micro_batch = 1, .micro_batches = 12, .sequence_parallel = true},
           EvenPlanRequest{.pipeline = 2,
           .tensor = 2,
           .data = 2,
           .micro_batch = 1,
           .micro_batches = 6,
           .recomputation = Recomputation::full,
           .zero_stage = 1},
           EvenPlanRequest{.pipeline = 2,
           .micro_batch = 1,
           .micro_batches = 12,
           .recomputation = Recomputation::selective},
       }) {
    const ComponentsOutcome planned = train_components(graph, request);
    expect_same(planned, one, name_of_plan(request));
    EXPECT_EQ(planned.ops, one.ops) << name_of_plan(request);
  }
}

TEST_P(AnyNumberOfImages, LayoutsChangeNoTraining) {
  const ModelGraph graph = GetParam()();
  const ComponentsOutcome one =
      train_components(graph, EvenPlanRequest{.micro_batch = step_samples});
  int micro_batches = 12;
  for (const char* layouts : {
           "vision=dp1 text=dp1@1",
           "vision=dp4 text=tp2,dp2",
           "vision=tp4 text=dp4",
           "vision=dp3 text=dp2@3-4",
           "vision=pp2 text=tp2@2-3",
           "vision=dp2,pp2 text=tp2,dp2@4-7",
           "vision=dp2 text=cp2,dp2@2",
           "vision=dp3@2 text=cp2",
       }) {
    LayoutPlanRequest request;
    request.layouts = parse_layouts(layouts);
    request.micro_batches = micro_batches;
    request.micro_batch = step_samples / micro_batches;
    micro_batches = 3;
    const ComponentsOutcome planned = train_components(graph, layout_plan(graph, request));
    expect_same(planned, one, layouts);
    EXPECT_EQ(planned.ops, one.ops) << layouts;
    EXPECT_EQ(planned.component_ops, one.component_ops) << layouts;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, AnyNumberOfImages,
                         ::testing::Values([] { return tiny_album(); },
                                           [] { return with_frozen(tiny_album(), "vision"); }));

// Masks depend on a sample's place in the step, or its item's, whatever has them.
TEST(AnyNumberOfImages, DropOutAlike) {
  const ModelGraph graph = tiny_album(0.2);
  const ComponentsOutcome one =
      train_components(graph, EvenPlanRequest{.micro_batch = step_samples});
  for (const EvenPlanRequest& request :
       {EvenPlanRequest{.micro_batch = 1, .micro_batches = 12},
        EvenPlanRequest{.pipeline = 2, .data = 3, .micro_batch = 2, .micro_batches = 2}}) {
    expect_same(train_components(graph, request), one, name_of_plan(request));
  }
}

// Rows of images move to the ranks that lack them, and none that are not there.
TEST(AnyNumberOfImages, BordersMoveTheLeast) {
  const ModelGraph graph = tiny_album();
  TrainingSpec spec = test::small_training(graph);
  constexpr std::uint64_t row_bytes = 9 * 16 * sizeof(double);
  for (const auto& [givers, takers] : {std::pair(4, 2), std::pair(2, 6), std::pair(12, 3)}) {
    LayoutPlanRequest request;
    request.layouts =
        parse_layouts(fmt::format("vision=dp{} text=dp{}@{}", givers, takers, givers));
    request.micro_batch = step_samples;
    const ComponentsOutcome moved = train_components(graph, layout_plan(graph, request));
    const StepSamples step(*spec.data, spec.seed, 2, step_samples);
    EXPECT_EQ(moved.border_bytes[0], step.images() * row_bytes) << givers << " to " << takers;
    EXPECT_EQ(moved.border_bytes[1], step.images() * row_bytes) << givers << " to " << takers;
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

// Degrees are those of a component's own heads: an encoder without attention has any, beside a
// language model of four heads. Both take the ranks that they have in common in turn.
TEST(DegreesOfComponents, AreAskedOfTheirOwnHeads) {
  ModelGraph graph;
  graph.name = "rows-and-text";
  const NodeId tokens = graph.add("tokens", Input{InputKind::tokens, 0, 0, 0, 8}, {}, "encoder");
  NodeId x = graph.add("encoder.embedding", Embedding{12, 9}, {tokens}, "encoder");
  x = graph.add("encoder.up", Linear{21, true, {}}, {x}, "encoder");
  x = graph.add("encoder.gelu", Gelu{}, {x}, "encoder");
  const NodeId rows = graph.add("encoder.down", Linear{16, true, {}}, {x}, "encoder");
  x = graph.add("embedding", Embedding{12, 16}, {tokens}, "language");
  x = graph.add("add", Add{}, {x, rows}, "language");
  x = graph.add("qkv", Linear{48, true, {}}, {x}, "language");
  x = graph.add("attention", Attention{4, 4, 4, false}, {x}, "language");
  x = graph.add("head", Linear{12, true, {}}, {x}, "language");
  graph.add("loss", CrossEntropy{}, {x}, "language");
  const ComponentsOutcome one =
      train_components(graph, EvenPlanRequest{.micro_batch = step_samples});
  for (const char* layouts : {"encoder=tp3 language=tp2@2", "encoder=tp3,dp2 language=tp4,dp1@1",
                              "encoder=dp5 language=tp2,cp2", "encoder=tp3 language=cp4@2"}) {
    LayoutPlanRequest request;
    request.layouts = parse_layouts(layouts);
    request.micro_batch = step_samples / 2;
    request.micro_batches = 2;
    Plan plan = layout_plan(graph, request);
    for (const SequenceOrder order : {SequenceOrder::zig_zag, SequenceOrder::blocks}) {
      for (StageReplica& replica : plan.stages[1].replicas) replica.part.order = order;
      const ComponentsOutcome planned = train_components(graph, plan);
      expect_same(planned, one, layouts);
      EXPECT_EQ(planned.ops, one.ops) << layouts;
    }
  }
  LayoutPlanRequest request;
  request.layouts = parse_layouts("encoder=tp2 language=tp3@1");
  try {
    ReadyPlan({graph, Precision::fp64, OptimizerKind::adamw}, layout_plan(graph, request));
    ADD_FAILURE();
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("3 tensor-parallel ranks cannot share the 4 heads"),
              std::string::npos)
        << error.what();
  }
}

// Of a hundred drawn layouts each gives the bits of one process, and sends no byte in vain;
// exact_parity_bench tries all.
TEST(ExactParity, DrawnLayoutsHaveTheGradientsOfOneProcessBitForBit) {
  const test::ExactParity parity;
  // The bits can only be the same because every number of the step is a whole one.
  EXPECT_EQ(parity.loss() * 64, std::round(parity.loss() * 64));
  ASSERT_EQ(parity.gradients().size(), 10U);
  for (const auto& [name, values] : parity.gradients()) {
    double largest = 0;
    for (const double value : values) {
      EXPECT_EQ(value * 64, std::round(value * 64)) << name;
      largest = std::max(largest, std::abs(value * 64));
    }
    EXPECT_GT(largest, 0) << name;
    EXPECT_LT(largest, std::ldexp(1.0, 53)) << name;
  }
  const auto drawn = test::drawn_parity_cases(100, 1, 12);
  ASSERT_EQ(drawn.size(), 100U);
  for (const test::ParityCase& tested : drawn) {
    EXPECT_EQ(parity.difference(tested), "") << tested.name();
    EXPECT_EQ(test::ExactParity::wasted_bytes(parity.training(tested)), "") << tested.name();
  }
}

// The ladders' own models on their own data, under layouts that are drawn.

/// $HETEROPERF_LAYOUTS for each model, else few enough for every day.
int drawn_layouts() {
  const char* asked = std::getenv("HETEROPERF_LAYOUTS");
  return asked == nullptr ? 3 : std::atoi(asked);
}

/// The gradients of the first step, by tensor, and the loss of the last one.
struct LongOutcome {
  std::map<std::string, std::vector<double>> gradients;
  double loss = 0;
};

LongOutcome train_long(const ModelGraph& graph, Plan plan) {
  TrainingSpec spec = test::small_training(graph);
  spec.data = open_data({"generated", sample_of(graph), 1});
  spec.recipe = {.kind = OptimizerKind::sgd, .learning_rate = 0.05, .weight_decay = 0};
  spec.use_plan(std::move(plan));
  const std::filesystem::path folder = test::make_test_folder();
  LongOutcome outcome;
  run_on_threads(spec.plan().ranks(), {}, [&](World& world) {
    const std::unique_ptr<TrainingSession> session = start_training(spec, *world.communicator);
    for (int i = 0; i < 20; ++i) {
      const StepReport report = session->step();
      if (i == 0) session->save(folder / "step-1");
      if (world.communicator->rank() == RankId(0)) outcome.loss = report.loss;
    }
  });
  outcome.gradients = test::read_velocities(folder / "step-1");
  std::filesystem::remove_all(folder);
  return outcome;
}

/// max |a − b| / max |b| over all tensors.
double difference(const LongOutcome& a, const LongOutcome& b) {
  double most = 0, largest = 0;
  EXPECT_EQ(a.gradients.size(), b.gradients.size());
  for (const auto& [name, values] : b.gradients) {
    const std::vector<double>& other = a.gradients.at(name);
    for (std::size_t i = 0; i < values.size(); ++i) {
      most = std::max(most, std::abs(other[i] - values[i]));
      largest = std::max(largest, std::abs(values[i]));
    }
  }
  return most / largest;
}

/// Components on the same ranks where these fit, else side by side.
std::string draw_layouts(std::mt19937_64& random, int most_context) {
  const auto below = [&](int bound) { return static_cast<int>(random() % bound); };
  struct {
    int tensor, data, pipeline;
  } vision{1 + below(2), 1 + below(3), 1 + below(2)},
      text{1 + below(2), 1 + below(3), 1 + below(2)};
  const int context = 1 + below(most_context);
  const bool same = vision.tensor * vision.data == text.tensor * context * text.data;
  return fmt::format("vision=tp{},dp{},pp{} text=tp{},cp{},dp{},pp{}@{}", vision.tensor,
                     vision.data, vision.pipeline, text.tensor, context, text.data, text.pipeline,
                     same ? 0 : vision.tensor * vision.data * vision.pipeline);
}

class DrawnLayouts : public ::testing::TestWithParam<const char*> {};

TEST_P(DrawnLayouts, HaveTheGradientsAndLossesOfOneRank) {
  const ModelGraph graph = build_model(GetParam());
  const LongOutcome one =
      train_long(graph, even_plan(graph, EvenPlanRequest{.micro_batch = step_samples}));
  ASSERT_GT(one.gradients.size(), 20U);
  std::mt19937_64 random(22);
  for (int i = 0; i < drawn_layouts(); ++i) {
    // Texts that are pooled, or whose first row is taken, need all of their tokens.
    const bool shares_text = std::string(GetParam()) == "vlm-nano";
    const std::string layouts = draw_layouts(random, shares_text ? 2 : 1);
    LayoutPlanRequest request;
    request.layouts = parse_layouts(layouts);
    request.micro_batches = 1 + i % 3;
    request.micro_batch = step_samples / request.micro_batches;
    const LongOutcome drawn = train_long(graph, layout_plan(graph, request));
    EXPECT_LE(difference(drawn, one), 1e-12) << layouts;
    EXPECT_LE(std::abs(drawn.loss - one.loss), 1e-10 * one.loss) << layouts;
  }
}

INSTANTIATE_TEST_SUITE_P(Ladders, DrawnLayouts,
                         ::testing::Values("two-tower-nano", "vlm-nano", "co-attention-nano"));

}  // namespace
}  // namespace heteroperf
