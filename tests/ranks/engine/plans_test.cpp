// Started by mpirun: every rank runs every test, in step with the others.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "runners/comm/communicator.hpp"
#include "runners/engine/module/torch_engine.hpp"
#include "runners/plan/even_plan.hpp"
#include "tests/ranks/comm/joined_world.hpp"
#include "tests/unit/runners/engine/exact_parity.hpp"
#include "tests/unit/runners/engine/small_trainings.hpp"

namespace heteroperf {
namespace {

struct PlanCase {
  const char* schedule;
  int pipeline, tensor, data, chunks, zero_stage;

  int ranks() const { return pipeline * tensor * data; }
  EvenPlanRequest request() const {
    EvenPlanRequest result;
    result.pipeline = pipeline;
    result.tensor = tensor;
    result.data = data;
    result.chunks = chunks;
    result.micro_batch = 2;
    result.micro_batches = 8;
    result.schedule = schedule;
    result.zero_stage = zero_stage;
    return result;
  }
};

constexpr PlanCase plan_cases[] = {
    {"gpipe", 2, 1, 1, 1, 0},      {"1f1b", 2, 1, 1, 1, 0},
    {"zb-h1", 2, 1, 1, 1, 0},      {"zb-v", 2, 1, 1, 2, 0},
    {"1f1b", 1, 2, 1, 1, 0},       {"1f1b", 1, 1, 2, 1, 0},
    {"1f1b", 1, 1, 2, 1, 1},       {"1f1b", 4, 1, 1, 1, 0},
    {"zb-h2", 4, 1, 1, 1, 0},      {"interleaved-1f1b", 4, 1, 1, 2, 0},
    {"looped-bfs", 4, 1, 1, 2, 0}, {"v-half", 4, 1, 1, 2, 0},
    {"v-min", 4, 1, 1, 2, 0},      {"chimera", 4, 1, 1, 1, 0},
    {"dualpipe", 4, 1, 1, 1, 0},   {"dualpipev", 4, 1, 1, 2, 0},
    {"1f1b", 2, 1, 2, 1, 1},       {"1f1b", 2, 2, 1, 1, 0},
    {"1f1b", 1, 2, 2, 1, 0},       {"1f1b", 1, 4, 1, 1, 0},
};

struct Losses {
  std::vector<double> losses, norms;
  double evaluation = 0;
};

Losses train(const EvenPlanRequest& request, Communicator& group) {
  TrainingSpec spec = test::small_training(test::gpt(16, 0.1));
  spec.recipe.clip_norm = 0.5;
  spec.use_plan(even_plan(spec.graph, request));
  const auto session = start_training(spec, group);
  Losses result;
  for (int i = 0; i < 2; ++i) {
    const StepReport report = session->step();
    result.losses.push_back(report.loss);
    result.norms.push_back(report.gradient_norm);
  }
  result.evaluation = session->evaluate(13).loss;
  return result;
}

double relative(double a, double b) { return std::abs(a - b) / std::max(std::abs(b), 1e-300); }

class OnMpi : public ::testing::TestWithParam<PlanCase> {};

TEST_P(OnMpi, TrainsAsOneRankDoes) {
  Communicator& world = *joined_world().communicator;
  const PlanCase plan = GetParam();
  if (plan.ranks() > world.size()) GTEST_SKIP() << "needs " << plan.ranks() << " ranks";
  // All ranks work, in groups of as many as the plan has.
  const auto group = world.split(world.rank().value() / plan.ranks(), world.rank().value());
  const Losses mine = train(plan.request(), *group);
  EvenPlanRequest alone;
  alone.micro_batch = plan.request().micro_batch;
  alone.micro_batches = plan.request().micro_batches * plan.data;
  const auto one_rank = make_null_communicator();
  const Losses one = train(alone, *one_rank);
  for (std::size_t i = 0; i < one.losses.size(); ++i) {
    EXPECT_LE(relative(mine.losses[i], one.losses[i]), 1e-11) << "step " << i;
    EXPECT_LE(relative(mine.norms[i], one.norms[i]), 1e-11) << "step " << i;
  }
  EXPECT_LE(relative(mine.evaluation, one.evaluation), 1e-11);
}

// Whole numbers: layouts of two components give the bits of one rank.
TEST(ComponentsOnMpi, HaveTheGradientsOfOneRankBitForBit) {
  Communicator& world = *joined_world().communicator;
  const test::ExactParity parity;
  for (const test::ParityCase& tested : test::drawn_parity_cases(8, world.size(), world.size())) {
    EXPECT_EQ(parity.difference(parity.training(tested), world), "") << tested.name();
  }
}

INSTANTIATE_TEST_SUITE_P(Plans, OnMpi, ::testing::ValuesIn(plan_cases), [](const auto& tested) {
  const PlanCase& plan = tested.param;
  std::string name = plan.schedule;
  std::replace(name.begin(), name.end(), '-', '_');
  return name + "_p" + std::to_string(plan.pipeline) + "_t" + std::to_string(plan.tensor) + "_d" +
         std::to_string(plan.data) + (plan.zero_stage > 0 ? "_zero" : "");
});

}  // namespace
}  // namespace heteroperf
