// A training whose plan changes in mid-run is the training that was saved to a checkpoint and
// resumed under the other plan: both have the same bits after the change and in the steps that
// follow.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "runners/comm/communicator.hpp"
#include "runners/comm/world.hpp"
#include "runners/engine/module/torch_engine.hpp"
#include "runners/plan/even_plan.hpp"
#include "tests/unit/runners/engine/small_trainings.hpp"

namespace heteroperf {
namespace {

/// The traces of a session on one rank, step by step.
struct Course {
  std::vector<std::string> fingerprints;  ///< before the first step and after each
  std::vector<StepReport> reports;
  EvaluationReport evaluation;
};

Course follow(TrainingSession& session, int steps) {
  Course course;
  course.fingerprints.push_back(session.parameter_fingerprint());
  for (int i = 0; i < steps; ++i) {
    course.reports.push_back(session.step());
    course.fingerprints.push_back(session.parameter_fingerprint());
  }
  course.evaluation = session.evaluate(13);
  return course;
}

void expect_same(const Course& a, const Course& b) {
  EXPECT_EQ(a.fingerprints, b.fingerprints);
  ASSERT_EQ(a.reports.size(), b.reports.size());
  for (std::size_t i = 0; i < a.reports.size(); ++i) {
    EXPECT_EQ(a.reports[i].step, b.reports[i].step);
    EXPECT_EQ(a.reports[i].loss, b.reports[i].loss);
    EXPECT_EQ(a.reports[i].gradient_norm, b.reports[i].gradient_norm);
    EXPECT_EQ(a.reports[i].learning_rate, b.reports[i].learning_rate);
  }
  EXPECT_EQ(a.evaluation.loss, b.evaluation.loss);
  EXPECT_EQ(a.evaluation.accuracy, b.evaluation.accuracy);
}

struct PlanChange {
  const char* name;
  ModelGraph (*graph)();
  EvenPlanRequest before, after;
  Precision precision = Precision::fp64;
};

ModelGraph small_gpt() { return test::gpt(4, 0.1); }
ModelGraph small_cnn() { return test::tiny_cnn(0.0); }

const PlanChange plan_changes[] = {
    {"replicas_to_pipeline",
     small_gpt,
     {.data = 4, .micro_batches = 2},
     {.pipeline = 4, .micro_batches = 8}},
    {"pipeline_to_replicas",
     small_gpt,
     {.pipeline = 4, .micro_batches = 8},
     {.data = 4, .micro_batches = 2}},
    {"tensor_to_chunks",
     small_gpt,
     {.pipeline = 2, .tensor = 2, .micro_batches = 8},
     {.pipeline = 4, .chunks = 2, .micro_batches = 8, .schedule = "interleaved-1f1b"}},
    {"spread_states",
     small_gpt,
     {.data = 4, .micro_batches = 2, .zero_stage = 1},
     {.pipeline = 2, .data = 2, .micro_batches = 4, .zero_stage = 1}},
    {"bf16_masters",
     small_gpt,
     {.pipeline = 2, .data = 2, .micro_batches = 4},
     {.tensor = 2, .data = 2, .micro_batches = 4},
     Precision::bf16},
    {"running_statistics",
     small_cnn,
     {.data = 4, .micro_batches = 2},
     {.pipeline = 2, .data = 2, .micro_batches = 4},
     Precision::fp32},
};

TrainingSpec spec_of(const PlanChange& change, const EvenPlanRequest& request) {
  TrainingSpec spec = test::small_training(change.graph(), change.precision);
  spec.recipe.clip_norm = 0.5;
  EvenPlanRequest full = request;
  full.micro_batch = 2;
  spec.use_plan(even_plan(spec.graph, full));
  return spec;
}

class TakeOver : public ::testing::TestWithParam<PlanChange> {};

TEST_P(TakeOver, EqualsACheckpointThatIsResumed) {
  const PlanChange& change = GetParam();
  const TrainingSpec before = spec_of(change, change.before), after = spec_of(change, change.after);
  ASSERT_EQ(before.plan().samples_per_step(), after.plan().samples_per_step());
  const std::filesystem::path folder = std::filesystem::temp_directory_path() /
                                       ("take_over_" + std::to_string(getpid()) + change.name);
  run_on_threads(4, {}, [&](World& world) {
    Communicator& group = *world.communicator;
    const auto first = start_training(before, group);
    for (int i = 0; i < 3; ++i) first->step();
    const std::string left = first->parameter_fingerprint();
    first->save((folder / "step-3").string());

    const auto moved = start_training(after, group), resumed = start_training(after, group);
    const std::string fresh = moved->parameter_fingerprint();
    moved->take_over(*first);
    resumed->restore((folder / "step-3").string());
    const Course course = follow(*moved, 3);
    expect_same(course, follow(*resumed, 3));
    EXPECT_EQ(course.reports.front().step, 3u);
    EXPECT_NE(course.fingerprints.front(), fresh);

    // The session that was left is as it was, and the way back ends where it began.
    EXPECT_EQ(first->parameter_fingerprint(), left);
    const auto back = start_training(before, group), there = start_training(after, group);
    there->take_over(*first);
    back->take_over(*there);
    EXPECT_EQ(back->parameter_fingerprint(), left);
  });
  std::filesystem::remove_all(folder);
}

INSTANTIATE_TEST_SUITE_P(Plans, TakeOver, ::testing::ValuesIn(plan_changes),
                         [](const auto& test) { return std::string(test.param.name); });

/// Both plans compute the same training: after a change the losses are those of the plan that was
/// left, but for the order of sums.
TEST(ChangedPlan, TheTrainingIsThatOfThePlanThatWasLeft) {
  const PlanChange& change = plan_changes[0];
  const TrainingSpec before = spec_of(change, change.before), after = spec_of(change, change.after);
  run_on_threads(4, {}, [&](World& world) {
    const auto left = start_training(before, *world.communicator);
    for (int i = 0; i < 2; ++i) left->step();
    const auto moved = start_training(after, *world.communicator);
    moved->take_over(*left);
    for (int i = 0; i < 3; ++i) {
      const StepReport a = left->step(), b = moved->step();
      EXPECT_LE(std::abs(a.loss - b.loss), 1e-11 * a.loss);
      EXPECT_LE(std::abs(a.gradient_norm - b.gradient_norm), 1e-10 * a.gradient_norm);
    }
  });
}

StageTimes times_of(const Plan& plan, const StagedGraph& staged, double unit_s) {
  StageTimes times;
  for (const StageId s : plan.stages.ids()) {
    times.compute.emplace_back();
    for (std::size_t r = 0; r < plan.stages[s].replicas.size(); ++r) {
      times.compute.back().push_back(
          {.forward_s = unit_s, .input_gradient_s = unit_s, .weight_gradient_s = unit_s});
    }
    times.reduction_s.push_back(0);
    times.optimizer_s.push_back(unit_s);
  }
  times.activation_s.assign(staged.edges.size(), 0);
  times.gradient_s.assign(staged.edges.size(), 0);
  return times;
}

TEST(Pacing, ADeviceChangesItsTimesAtAStep) {
  const PlanChange& change = plan_changes[1];
  TrainingSpec spec = spec_of(change, change.before);
  constexpr double unit_s = 1e-4;
  spec.pacing = Pacing{times_of(spec.plan(), spec.ready->staged, unit_s), 1.0, 1};
  spec.pacing->change = {2, times_of(spec.plan(), spec.ready->staged, 3 * unit_s)};
  run_on_threads(4, {}, [&](World& world) {
    const auto session = start_training(spec, *world.communicator);
    // Three passes of eight micro-batches and the optimizer.
    for (const double expected_s : {25 * unit_s, 25 * unit_s, 75 * unit_s, 75 * unit_s}) {
      session->step();
      EXPECT_NEAR(session->pacing()->computing_s, expected_s, 1e-12);
    }
  });
}

// Modelled times that no machine reaches must be stretched.
TEST(Pacing, ATrainingThatGoesOnMeasuresItsDilationInItsOwnSecondStep) {
  const PlanChange& change = plan_changes[1];
  TrainingSpec spec = spec_of(change, change.before);
  spec.pacing = Pacing{times_of(spec.plan(), spec.ready->staged, 1e-9), 0, 1};
  run_on_threads(4, {}, [&](World& world) {
    const auto first = start_training(spec, *world.communicator);
    for (int i = 0; i < 3; ++i) first->step();
    first->rest();
    const auto next = start_training(spec, *world.communicator);
    next->take_over(*first);
    next->step();
    EXPECT_EQ(next->pacing()->dilation, 1);
    next->step();
    EXPECT_GT(next->pacing()->dilation, 1);
  });
}

}  // namespace
}  // namespace heteroperf
