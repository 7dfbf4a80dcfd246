// Models of several components train alike whatever micro-batches and ranks hold their samples: one
// loss over a step, one number of targets that count, rows that streams exchange.
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
#include "runners/plan/ready/ready_plan.hpp"
#include "tests/unit/runners/engine/component_cases.hpp"
#include "tests/unit/runners/engine/small_trainings.hpp"
#include "workloads/models/models.hpp"

namespace heteroperf {
namespace {

using test::ComponentsOutcome;
using test::expect_same;
using test::step_samples;
using test::train_components;

// Each sample is held against all twelve of the step, so every plan trains as the one that has them
// in one micro-batch, and counts as many operations.
TEST(SetLoss, OverAStepEveryPlanTrainsAsOneMicroBatch) {
  const ModelGraph graph = test::tiny_towers();
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
    expect_same(planned, one, test::name_of_plan(request));
    EXPECT_EQ(planned.ops, one.ops) << test::name_of_plan(request);
  }
}

// A set is the micro-batch of the plan, of which replicas have parts.
TEST(SetLoss, OverAMicroBatchReplicasHoldPartsOfIt) {
  const ModelGraph graph = test::tiny_towers(ContrastOver::micro_batch);
  const ComponentsOutcome one =
      train_components(graph, EvenPlanRequest{.micro_batch = 4, .micro_batches = 3});
  for (const EvenPlanRequest& request : {
           EvenPlanRequest{.data = 2, .micro_batch = 2, .micro_batches = 3},
           EvenPlanRequest{.pipeline = 2, .data = 4, .micro_batch = 1, .micro_batches = 3},
       }) {
    const ComponentsOutcome planned = train_components(graph, request);
    expect_same(planned, one, test::name_of_plan(request));
    EXPECT_EQ(planned.ops, one.ops) << test::name_of_plan(request);
  }
  const ComponentsOutcome step =
      train_components(test::tiny_towers(), EvenPlanRequest{.micro_batch = 4, .micro_batches = 3});
  EXPECT_GT(step.losses.front(), one.losses.front() + 0.5);
}

// Only schedules that wait for a whole set can train these models.
TEST(SetLoss, ASchedulesOrderMustAllowIt) {
  const ModelGraph graph = test::tiny_towers();
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

// The mean is over the targets that count in the whole step: a replica with few of them weighs
// less.
TEST(CountedTargets, EveryPlanTrainsAsOneMicroBatch) {
  const ModelGraph graph = test::tiny_captioner();
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
    expect_same(planned, one, test::name_of_plan(request));
    EXPECT_EQ(planned.ops, one.ops) << test::name_of_plan(request);
  }
}

// Rows of each stream go to the other one, whatever holds them, and gradients come back.
TEST(Exchanges, EveryPlanTrainsAsOneMicroBatch) {
  const ModelGraph graph = test::tiny_streams();
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
    expect_same(planned, one, test::name_of_plan(request));
    EXPECT_EQ(planned.ops, one.ops) << test::name_of_plan(request);
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

// Frozen weights stay those of the seed, and have no part in the norm; what is behind them trains.
TEST(FrozenComponents, ChangeNothingButWhatTheyHold) {
  const ModelGraph graph = test::tiny_captioner();
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

}  // namespace
}  // namespace heteroperf
