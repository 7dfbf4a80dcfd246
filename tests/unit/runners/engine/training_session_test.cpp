#include "runners/engine/module/torch_engine.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "metrics/base/error.hpp"
#include "runners/comm/communicator.hpp"
#include "runners/comm/world.hpp"
#include "tests/unit/runners/engine/small_trainings.hpp"
#include "workloads/graph/graph_counts.hpp"
#include "workloads/models/models.hpp"

namespace heteroperf {
namespace {

/// What a run of some steps leaves behind.
struct Outcome {
  std::vector<StepReport> steps;
  EvaluationReport evaluation;
  std::string fingerprint;
};

Outcome train(const TrainingSpec& spec, Communicator& group, int steps) {
  const std::unique_ptr<TrainingSession> session = start_training(spec, group);
  Outcome outcome;
  for (int i = 0; i < steps; ++i) outcome.steps.push_back(session->step());
  outcome.evaluation = session->evaluate(50);
  outcome.fingerprint = session->parameter_fingerprint();
  return outcome;
}

Outcome train_alone(const TrainingSpec& spec, int steps) {
  const std::unique_ptr<Communicator> alone = make_null_communicator();
  return train(spec, *alone, steps);
}

std::vector<Outcome> train_on(int ranks, const TrainingSpec& spec, int steps) {
  std::vector<Outcome> outcomes(static_cast<std::size_t>(ranks));
  run_on_threads(ranks, {}, [&](World& world) {
    const auto rank = world.communicator->rank().index();
    outcomes[rank] = train(spec, *world.communicator, steps);
  });
  return outcomes;
}

double relative(double a, double b) { return std::abs(a - b) / std::max(std::abs(a), 1e-300); }

TEST(TrainingSession, TheSameSeedGivesTheSameBits) {
  for (const Precision precision : {Precision::fp32, Precision::fp64, Precision::bf16}) {
    TrainingSpec spec = test::small_training(test::tiny_gpt(0.1), precision);
    const Outcome a = train_alone(spec, 3), b = train_alone(spec, 3);
    EXPECT_EQ(a.fingerprint, b.fingerprint);
    EXPECT_EQ(a.steps.back().loss, b.steps.back().loss);
    spec.seed = 2;
    EXPECT_NE(train_alone(spec, 3).fingerprint, a.fingerprint);
  }
}

TEST(TrainingSession, TheBitsDoNotDependOnTheNumberOfThreads) {
  TrainingSpec spec = test::small_training(test::tiny_gpt(), Precision::fp32);
  const Outcome one = train_alone(spec, 3);
  spec.threads = 2;
  EXPECT_EQ(train_alone(spec, 3).fingerprint, one.fingerprint);
}

class DataParallel : public ::testing::TestWithParam<int> {};

TEST_P(DataParallel, RanksEqualOneRankWithTheSameGlobalBatch) {
  const int ranks = GetParam();
  for (ModelGraph graph : {test::tiny_gpt(0.2), test::tiny_cnn(0.2)}) {
    TrainingSpec spec = test::small_training(std::move(graph));
    spec.recipe.clip_norm = 0.5;
    const std::vector<Outcome> many = train_on(ranks, test::replicated(spec, ranks, 4, 2), 3);
    const Outcome one = train_alone(test::replicated(spec, 1, 4, 2 * ranks), 3);
    for (const Outcome& outcome : many) {
      EXPECT_EQ(outcome.fingerprint, many[0].fingerprint);
      for (std::size_t i = 0; i < 3; ++i) {
        EXPECT_EQ(outcome.steps[i].samples, one.steps[i].samples);
        EXPECT_LT(relative(outcome.steps[i].loss, one.steps[i].loss), 1e-12);
        EXPECT_LT(relative(outcome.steps[i].gradient_norm, one.steps[i].gradient_norm), 1e-12);
      }
      EXPECT_EQ(outcome.evaluation.loss, many[0].evaluation.loss);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, DataParallel, ::testing::Values(2, 4));

TEST(TrainingSession, MicroBatchesAddUpToTheLargerBatch) {
  const TrainingSpec spec = test::small_training(test::tiny_gpt());
  const Outcome whole = train_alone(test::replicated(spec, 1, 8), 3);
  const Outcome parts = train_alone(test::replicated(spec, 1, 2, 4), 3);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_LT(relative(parts.steps[i].loss, whole.steps[i].loss), 1e-12);
    EXPECT_LT(relative(parts.steps[i].gradient_norm, whole.steps[i].gradient_norm), 1e-12);
  }
}

TEST(TrainingSession, AnEvaluationDoesNotDependOnTheRanksOrChangeTheTraining) {
  TrainingSpec spec = test::small_training(test::tiny_cnn());
  const auto evaluate_twice = [&](Communicator& group) {
    const auto session = start_training(test::replicated(spec, group.size()), group);
    const EvaluationReport first = session->evaluate(37), second = session->evaluate(37);
    EXPECT_EQ(first.loss, second.loss);
    return first;
  };
  const auto alone = make_null_communicator();
  const EvaluationReport one = evaluate_twice(*alone);
  EXPECT_EQ(one.samples, 37U);
  run_on_threads(3, {}, [&](World& world) {
    const EvaluationReport three = evaluate_twice(*world.communicator);
    EXPECT_EQ(three.loss, one.loss);
    EXPECT_EQ(three.accuracy, one.accuracy);
    EXPECT_EQ(three.samples, 37U);
  });
  EXPECT_EQ(start_training(spec, *alone)->evaluate(1000).samples, 50U);
}

TEST(TrainingSession, OneThatRestsKeepsItsModelBesideAnother) {
  TrainingSpec spec = test::small_training(test::tiny_cnn());
  run_on_threads(2, {}, [&](World& world) {
    Communicator& group = *world.communicator;
    const auto kept = start_training(test::replicated(spec, 2), group);
    kept->step();
    const EvaluationReport before = kept->evaluate(20);
    kept->rest();
    TrainingSpec other = test::replicated(spec, 2);
    other.seed = 2;
    const auto next = start_training(other, group);
    next->step();
    const EvaluationReport after = kept->evaluate(20);
    EXPECT_EQ(after.loss, before.loss);
    EXPECT_EQ(after.accuracy, before.accuracy);
    EXPECT_NE(next->evaluate(20).loss, before.loss);
    EXPECT_TRUE(std::isfinite(kept->step().loss));
  });
}

TEST(TrainingSession, AccuracyRisesWithWhatIsLearnt) {
  TrainingSpec spec = test::small_training(test::tiny_gpt(), Precision::fp32);
  spec.recipe.learning_rate = 1e-2;
  const auto alone = make_null_communicator();
  const auto session = start_training(spec, *alone);
  const EvaluationReport before = session->evaluate(20);
  EXPECT_NEAR(before.loss, std::log(40.0), 0.2);
  for (int i = 0; i < 60; ++i) session->step();
  const EvaluationReport after = session->evaluate(20);
  EXPECT_LT(after.loss, 0.5);
  EXPECT_GT(after.accuracy, 0.9);
  EXPECT_LT(before.accuracy, 0.3);
}

/// Pixels that become NaN from some sample on; one rank alone meets the first of them.
class PoisonedImages final : public DataSource {
 public:
  explicit PoisonedImages(const SampleSpec& spec) : good_(spec) {}
  const SampleSpec& spec() const override { return good_.spec(); }
  std::uint64_t size(Split split) const override { return good_.size(split); }
  void read(Split split, std::uint64_t index, SampleView out) const override {
    good_.read(split, index, out);
    if (split == Split::train && ++reads_ == 9) {
      out.pixels[0] = std::numeric_limits<float>::quiet_NaN();
    }
  }
  std::string description() const override { return "poisoned"; }
  std::string fingerprint() const override { return "poisoned"; }

 private:
  test::RandomSamples good_;
  mutable std::atomic<int> reads_ = 0;
};

TEST(TrainingSession, ANaNOnOneRankLeavesTheWeightsOfAllAlone) {
  TrainingSpec spec = test::small_training(test::tiny_cnn(), Precision::fp32);
  spec.data = std::make_shared<PoisonedImages>(spec.data->spec());
  run_on_threads(2, {}, [&](World& world) {
    const auto session = start_training(test::replicated(spec, 2), *world.communicator);
    EXPECT_TRUE(std::isfinite(session->step().loss));
    const std::string before = session->parameter_fingerprint();
    EXPECT_FALSE(std::isfinite(session->step().loss));
    EXPECT_EQ(session->parameter_fingerprint(), before);
    EXPECT_TRUE(std::isfinite(session->step().loss));
    EXPECT_NE(session->parameter_fingerprint(), before);
  });
}

TEST(TrainingSession, Bf16Learns) {
  TrainingSpec spec = test::small_training(test::tiny_gpt(), Precision::bf16);
  spec.recipe.learning_rate = 1e-2;
  const Outcome outcome = train_alone(test::replicated(spec, 1, 4, 2), 40);
  EXPECT_LT(outcome.steps.back().loss, 0.6 * outcome.steps.front().loss);
}

TEST(TrainingSession, TheSplitAddsUpToTheStep) {
  const Outcome outcome = train_alone(test::small_training(test::tiny_gpt(), Precision::fp32), 3);
  for (const StepReport& report : outcome.steps) {
    const TimeSplit& s = report.split;
    const double wall_s = static_cast<double>(report.t_end_ns - report.t_start_ns) * 1e-9;
    EXPECT_NEAR(s.compute_s + s.communication_s + s.bubble_s + s.data_s + s.other_s, wall_s, 1e-9);
    EXPECT_GT(s.compute_s, 0);
    EXPECT_GT(s.data_s, 0);
  }
}

TEST(TrainingSession, MemoryDoesNotGrow) {
  const auto alone = make_null_communicator();
  const auto session =
      start_training(test::small_training(test::tiny_cnn(), Precision::fp32), *alone);
  for (int i = 0; i < 5; ++i) session->step();
  const MemoryUse early = session->memory();
  for (int i = 0; i < 100; ++i) session->step();
  const MemoryUse late = session->memory();
  EXPECT_EQ(late.current_bytes, early.current_bytes);
  EXPECT_EQ(late.peak_bytes, early.peak_bytes);
  EXPECT_GT(late.peak_bytes, late.current_bytes);
}

TEST(TrainingSession, TheLossOfNanoFallsOnGeneratedData) {
  TrainingSpec spec;
  spec.graph = build_model("nano");
  DataRequest request;
  request.wanted = {SampleKind::tokens, 0, 0, 0, 128, 256};
  spec.data = open_data(request);
  spec.recipe.learning_rate = 3e-3;
  spec.threads = 2;
  const Outcome outcome = train_alone(test::replicated(spec, 1), 30);
  EXPECT_LT(outcome.steps.back().loss, outcome.steps.front().loss - 0.3);
  EXPECT_GT(outcome.steps.back().loss, spec.data->loss_floor().value());
}

TEST(TrainingSession, ASampleMayBeOneToken) {
  ModelOptions options;
  options.length = 1;
  const Outcome outcome = train_alone(test::small_training(build_model("nano", options)), 2);
  EXPECT_NEAR(outcome.steps.front().loss, std::log(256), 0.3);
}

TEST(TrainingSession, EveryReasonASpecCannotRunIsReported) {
  const auto alone = make_null_communicator();
  TrainingSpec spec = test::small_training(test::tiny_gpt());
  spec.data =
      std::make_shared<test::RandomSamples>(SampleSpec{SampleKind::images, 3, 8, 8, 0, 100}, 0);
  try {
    start_training(spec, *alone);
    FAIL() << "accepted";
  } catch (const UserError& error) {
    EXPECT_EQ(error.problems().size(), 4U) << error.what();
    EXPECT_NE(std::string(error.what()).find("3x8x8 images"), std::string::npos);
  }
}

TEST(TrainingSession, MoreRanksThanSamplesIsRefused) {
  TrainingSpec spec = test::small_training(test::tiny_gpt());
  spec.data = std::make_shared<test::RandomSamples>(spec.data->spec(), 1);
  EXPECT_THROW(
      run_on_threads(2, {}, [&](World& world) { start_training(spec, *world.communicator); }),
      UserError);
}

TEST(TrainingSession, RanksWithDifferentTrainingsAreRefused) {
  const TrainingSpec spec = test::small_training(test::tiny_gpt());
  EXPECT_THROW(run_on_threads(2, {},
                              [&](World& world) {
                                TrainingSpec own = spec;
                                own.seed +=
                                    static_cast<std::uint64_t>(world.communicator->rank().value());
                                start_training(own, *world.communicator);
                              }),
               UserError);
}

TEST(TrainingSession, EvaluatingOnNothingIsRefused) {
  TrainingSpec spec = test::small_training(test::tiny_gpt());
  spec.data = std::make_shared<test::RandomSamples>(spec.data->spec(), 100, 0);
  const auto alone = make_null_communicator();
  EXPECT_THROW(start_training(spec, *alone)->evaluate(10), UserError);
}

TEST(TrainingSession, TheLearningRateFollowsTheRecipe) {
  TrainingSpec spec = test::small_training(test::tiny_gpt());
  spec.recipe.warmup_steps = 3;
  const Outcome outcome = train_alone(spec, 4);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(outcome.steps[i].step, i);
    EXPECT_EQ(outcome.steps[i].learning_rate, learning_rate_at(spec.recipe, i));
  }
}

}  // namespace
}  // namespace heteroperf
