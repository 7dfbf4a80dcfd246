#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "runners/comm/communicator.hpp"
#include "runners/comm/world.hpp"
#include "runners/engine/training_session.hpp"
#include "runners/plan/even_plan.hpp"
#include "tests/unit/runners/engine/small_trainings.hpp"

namespace heteroperf {
namespace {

/// What some steps and an evaluation leave behind on rank 0.
struct Outcome {
  std::vector<double> losses, norms;
  double evaluation = 0, accuracy = 0;
};

Outcome train(const TrainingSpec& spec, Communicator& group, int steps) {
  const std::unique_ptr<TrainingSession> session = start_training(spec, group);
  Outcome outcome;
  for (int i = 0; i < steps; ++i) {
    const StepReport report = session->step();
    outcome.losses.push_back(report.loss);
    outcome.norms.push_back(report.gradient_norm);
  }
  const EvaluationReport evaluation = session->evaluate(13);
  outcome.evaluation = evaluation.loss;
  outcome.accuracy = evaluation.accuracy;
  return outcome;
}

Outcome train_on_threads(const TrainingSpec& spec, int steps = 3) {
  Outcome outcome;
  run_on_threads(spec.plan.ranks(), {}, [&](World& world) {
    const Outcome mine = train(spec, *world.communicator, steps);
    if (world.communicator->rank() == RankId(0)) outcome = mine;
  });
  return outcome;
}

TrainingSpec planned(const ModelGraph& graph, const EvenPlanRequest& request,
                     Precision precision = Precision::fp64) {
  TrainingSpec spec = test::small_training(graph, precision);
  spec.recipe.clip_norm = 0.5;
  spec.plan = even_plan(graph, request);
  return spec;
}

double relative(double a, double b) { return std::abs(a - b) / std::max(std::abs(b), 1e-300); }

/// The same global batch on one rank: micro-batches as the plan's replicas cut them.
Outcome serial(const ModelGraph& graph, const EvenPlanRequest& request, int steps = 3) {
  EvenPlanRequest alone;
  alone.micro_batch = request.micro_batch;
  alone.micro_batches = request.micro_batches * request.data;
  return train_on_threads(planned(graph, alone), steps);
}

void expect_close(const Outcome& a, const Outcome& b, double limit, const std::string& name) {
  ASSERT_EQ(a.losses.size(), b.losses.size()) << name;
  for (std::size_t i = 0; i < a.losses.size(); ++i) {
    EXPECT_LE(relative(a.losses[i], b.losses[i]), limit) << name << " step " << i;
    EXPECT_LE(relative(a.norms[i], b.norms[i]), limit) << name << " step " << i;
  }
  EXPECT_LE(relative(a.evaluation, b.evaluation), limit) << name;
  EXPECT_EQ(a.accuracy, b.accuracy) << name;
}

struct ScheduleCase {
  const char* name;
  int pipeline, chunks;
};

class Schedules : public ::testing::TestWithParam<ScheduleCase> {};

TEST_P(Schedules, TrainAsOneRankDoes) {
  const auto [name, pipeline, chunks] = GetParam();
  const ModelGraph graph = test::gpt(16, 0.1);
  EvenPlanRequest request;
  request.pipeline = pipeline;
  request.chunks = chunks;
  request.micro_batch = 2;
  request.micro_batches = 8;
  request.schedule = name;
  expect_close(train_on_threads(planned(graph, request)), serial(graph, request), 1e-12, name);
}

INSTANTIATE_TEST_SUITE_P(
    Even, Schedules,
    ::testing::Values(ScheduleCase{"1f1b", 2, 1}, ScheduleCase{"gpipe", 4, 1},
                      ScheduleCase{"1f1b", 4, 1}, ScheduleCase{"interleaved-1f1b", 2, 2},
                      ScheduleCase{"interleaved-1f1b", 4, 2}, ScheduleCase{"looped-bfs", 2, 2},
                      ScheduleCase{"zb-h1", 2, 1}, ScheduleCase{"zb-h1", 4, 1},
                      ScheduleCase{"zb-h2", 4, 1}, ScheduleCase{"zb-v", 2, 2},
                      ScheduleCase{"zb-v", 4, 2}, ScheduleCase{"v-half", 4, 2},
                      ScheduleCase{"v-min", 4, 2}, ScheduleCase{"chimera", 4, 1},
                      ScheduleCase{"dualpipe", 4, 1}, ScheduleCase{"dualpipev", 4, 2},
                      ScheduleCase{"auto", 2, 1}),
    [](const auto& tested) {
      std::string name = tested.param.name;
      std::replace(name.begin(), name.end(), '-', '_');
      return name + "_on_" + std::to_string(tested.param.pipeline);
    });

TEST(Pipeline, WithoutReplicasTheBitsAreThoseOfOneRank) {
  const ModelGraph graph = test::gpt(4, 0.1);
  EvenPlanRequest request;
  request.pipeline = 2;
  request.micro_batch = 2;
  request.micro_batches = 4;
  const Outcome two = train_on_threads(planned(graph, request));
  const Outcome one = serial(graph, request);
  EXPECT_EQ(two.losses, one.losses);
}

TEST(Pipeline, ReplicasAndTensorParallelRanksTrainAsOne) {
  const ModelGraph graph = test::gpt(4, 0.1);
  for (const EvenPlanRequest& request :
       {EvenPlanRequest{.pipeline = 2, .data = 2, .micro_batch = 2, .micro_batches = 4},
        EvenPlanRequest{.tensor = 2, .micro_batch = 2, .micro_batches = 2},
        EvenPlanRequest{.pipeline = 2, .tensor = 2, .data = 2, .micro_batch = 1,
                        .micro_batches = 4},
        EvenPlanRequest{.tensor = 4, .micro_batch = 2, .micro_batches = 2}}) {
    expect_close(train_on_threads(planned(graph, request)), serial(graph, request), 1e-11,
                 "p " + std::to_string(request.pipeline) + " t " + std::to_string(request.tensor) +
                     " d " + std::to_string(request.data));
  }
}

TEST(Pipeline, ConvolutionNetsWithSkipEdges) {
  const ModelGraph graph = test::tiny_cnn(0.1);
  EvenPlanRequest request;
  request.pipeline = 3;
  request.micro_batch = 4;
  request.micro_batches = 4;
  expect_close(train_on_threads(planned(graph, request)), serial(graph, request), 1e-12, "cnn");
}

TEST(Pipeline, RecomputationChangesNoBits) {
  const ModelGraph graph = test::gpt(4, 0.1);
  EvenPlanRequest request;
  request.pipeline = 2;
  request.micro_batch = 2;
  request.micro_batches = 4;
  const Outcome none = train_on_threads(planned(graph, request));
  for (const Recomputation again : {Recomputation::selective, Recomputation::full}) {
    request.recomputation = again;
    const Outcome other = train_on_threads(planned(graph, request));
    EXPECT_EQ(other.losses, none.losses) << to_string(again);
    EXPECT_EQ(other.norms, none.norms) << to_string(again);
  }
}

}  // namespace
}  // namespace heteroperf
