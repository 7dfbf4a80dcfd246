#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <utility>

#include "runners/plan/even_plan.hpp"
#include "runners/plan/layout_plan.hpp"
#include "tests/unit/runners/engine/component_cases.hpp"
#include "tests/unit/runners/engine/small_trainings.hpp"
#include "workloads/data/step_samples.hpp"
#include "workloads/graph/model_graph.hpp"

namespace heteroperf {
namespace {

using test::ComponentsOutcome;
using test::expect_same;
using test::step_samples;
using test::train_components;

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
    expect_same(planned, one, test::name_of_plan(request));
    EXPECT_EQ(planned.ops, one.ops) << test::name_of_plan(request);
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
                         ::testing::Values([] { return test::tiny_album(); },
                                           [] {
                                             return with_frozen(test::tiny_album(), "vision");
                                           }));

// Masks depend on a sample's place in the step, or its item's, whatever has them.
TEST(AnyNumberOfImages, DropOutAlike) {
  const ModelGraph graph = test::tiny_album(0.2);
  const ComponentsOutcome one =
      train_components(graph, EvenPlanRequest{.micro_batch = step_samples});
  for (const EvenPlanRequest& request :
       {EvenPlanRequest{.micro_batch = 1, .micro_batches = 12},
        EvenPlanRequest{.pipeline = 2, .data = 3, .micro_batch = 2, .micro_batches = 2}}) {
    expect_same(train_components(graph, request), one, test::name_of_plan(request));
  }
}

// Rows of images move to the ranks that lack them, and none that are not there.
TEST(AnyNumberOfImages, BordersMoveTheLeast) {
  const ModelGraph graph = test::tiny_album();
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

}  // namespace
}  // namespace heteroperf
