// Components in layouts of their own train as one rank does.
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
#include "runners/plan/even_plan.hpp"
#include "runners/plan/layout_plan.hpp"
#include "runners/plan/ready/ready_plan.hpp"
#include "suite/planning/border_bytes.hpp"
#include "tests/unit/runners/engine/component_cases.hpp"
#include "tests/unit/runners/engine/exact_parity.hpp"
#include "tests/unit/runners/engine/small_trainings.hpp"
#include "workloads/models/models.hpp"

namespace heteroperf {
namespace {

using test::ComponentsOutcome;
using test::expect_same;
using test::step_samples;
using test::train_components;

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

INSTANTIATE_TEST_SUITE_P(
    Models, LayoutsOfComponents,
    ::testing::Values([] { return test::tiny_towers(); }, &test::tiny_captioner,
                      &test::tiny_streams,
                      [] { return with_frozen(test::tiny_streams(), "vision"); },
                      [] { return with_frozen(test::tiny_captioner(), "vision"); },
                      [] { return with_frozen(test::tiny_towers(), "text"); }));

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
std::string draw_layouts(std::mt19937_64& random) {
  const auto below = [&](int bound) { return static_cast<int>(random() % bound); };
  struct Degrees {
    int tensor, context, data, pipeline;
    int ranks() const { return tensor * context * data; }
    std::string text() const {
      return fmt::format("tp{},cp{},dp{},pp{}", tensor, context, data, pipeline);
    }
  };
  const auto draw = [&] { return Degrees{1 + below(2), 1 + below(2), 1 + below(3), 1 + below(2)}; };
  const Degrees vision = draw(), text = draw();
  const int first = vision.ranks() == text.ranks() ? 0 : vision.ranks() * vision.pipeline;
  return fmt::format("vision={} text={}@{}", vision.text(), text.text(), first);
}

class DrawnLayouts : public ::testing::TestWithParam<const char*> {};

TEST_P(DrawnLayouts, HaveTheGradientsAndLossesOfOneRank) {
  const ModelGraph graph = build_model(GetParam());
  const LongOutcome one =
      train_long(graph, even_plan(graph, EvenPlanRequest{.micro_batch = step_samples}));
  ASSERT_GT(one.gradients.size(), 20U);
  std::mt19937_64 random(22);
  for (int i = 0; i < drawn_layouts(); ++i) {
    const std::string layouts = draw_layouts(random);
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
