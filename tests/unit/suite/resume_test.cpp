#include "suite/run/resume.hpp"

#include <gtest/gtest.h>

#include <fstream>

#include "metrics/base/error.hpp"
#include "suite/config/run_config_json.hpp"
#include "tests/unit/suite/recorded_training.hpp"

namespace heteroperf {
namespace {

namespace fs = std::filesystem;

class Resume : public testing::Test {
 protected:
  Resume() {
    write_run(run_, folder_.path());
    for (const std::uint64_t step : {10u, 20u}) save_parameters(run_, folder_.path(), step, {1});
  }
  ResumePlan plan(std::vector<Setting> settings = {},
                  std::optional<std::uint64_t> step = {}) const {
    return plan_resume({folder_.path(), step, std::move(settings)});
  }
  std::string problem(std::vector<Setting> settings = {}) const {
    return message_of<UserError>([&] { plan(settings); });
  }
  void cut(std::uint64_t step) const {
    fs::resize_file(
        folder_.path() / "checkpoints" / ("step-" + std::to_string(step)) / "rank-0.safetensors",
        3);
  }

  TemporaryFolder folder_;
  SampleRun run_ = recorded_training();
};

TEST_F(Resume, TakesTheRunsConfigurationAndItsLastCheckpoint) {
  const ResumePlan found = plan();
  EXPECT_TRUE(found.warnings.empty());
  EXPECT_EQ(found.config.workload, "image");
  EXPECT_EQ(found.config.seed, 42u);
  EXPECT_EQ(found.config.out, "");
  EXPECT_EQ(found.config.batch.micro_batches, 4);
  EXPECT_EQ(found.config.measure.steps, 32u);
  ASSERT_TRUE(found.config.parent);
  EXPECT_EQ(found.config.parent->run_id, "20260101T101500Z-image-0123abcd");
  EXPECT_EQ(found.config.parent->step, 20u);
  EXPECT_EQ(fs::path(found.config.parent->checkpoint).filename(), "step-20");
}

TEST_F(Resume, SkipsABrokenCheckpointAndTakesTheOneAskedFor) {
  cut(20);
  const ResumePlan found = plan();
  EXPECT_EQ(found.config.parent->step, 10u);
  ASSERT_EQ(found.warnings.size(), 1u);
  EXPECT_NE(found.warnings[0].find("step-20"), std::string::npos);
  EXPECT_EQ(plan({}, 10).config.parent->step, 10u);
  EXPECT_NE(message_of<UserError>([&] { plan({}, 15); }).find("no checkpoint of step 15"),
            std::string::npos);
  cut(10);
  EXPECT_NE(problem().find("is broken"), std::string::npos) << problem();
}

TEST_F(Resume, SamplesPerStepStayWithOtherRanks) {
  EXPECT_EQ(plan({{"scale.ranks", "4"}}).config.batch.micro_batches, 2);
  EXPECT_EQ(plan({{"scale.ranks", "8"}}).config.batch.micro_batches, 1);
  EXPECT_EQ(plan({{"scale.ranks", "1"}}).config.batch.micro_batches, 8);
  EXPECT_EQ(plan({{"scale.ranks", "1"}, {"batch.micro_batch", "16"}}).config.batch.micro_batches,
            4);
  EXPECT_NE(problem({{"scale.ranks", "3"}}).find("64 samples per step do not fit 3 replicas"),
            std::string::npos);
}

TEST_F(Resume, AnotherPlanTakesThePlaceOfTheOldOne) {
  const RunConfig pipeline = plan({{"plan.pipeline", "2"}}).config;
  EXPECT_EQ(pipeline.scale.ranks, 2);
  EXPECT_EQ(pipeline.batch.micro_batches, 8) << "one replica of micro-batches of 8";
  const RunConfig mixed =
      plan({{"plan.pipeline", "2"}, {"plan.tensor", "2"}, {"plan.data", "2"}}).config;
  EXPECT_EQ(mixed.scale.ranks, 0) << "as many as the degrees make";
  EXPECT_EQ(mixed.batch.micro_batches, 4);
  EXPECT_NE(problem({{"plan.pipeline", "3"}}), "nothing was thrown") << "2 ranks";

  const RunConfig file = plan({{"plan.file", "p.json"}}).config;
  EXPECT_EQ(file.plan.file, "p.json");
  EXPECT_EQ(file.scale.ranks, 0);
  EXPECT_EQ(file.batch.micro_batch, 0);
}

TEST_F(Resume, APlansFileIsTheOneOfTheRunsFolder) {
  RunConfig config = run_config_from_json_text(run_.last<ConfigEvent>().config.text);
  config.batch = {};
  config.plan.file = "long/gone.json";
  run_.last<ConfigEvent>().config.text = to_json_text(config);
  write_run(run_, folder_.path());
  EXPECT_EQ(plan().config.plan.file, "long/gone.json");
  std::ofstream(folder_.path() / "plan.json") << "{}";
  EXPECT_EQ(fs::path(plan().config.plan.file), fs::absolute(folder_.path() / "plan.json"));
  EXPECT_EQ(plan({{"scale.ranks", "4"}, {"batch.micro_batch", "8"}}).config.plan.file, "");
}

TEST_F(Resume, AQuickRunGoesOn) {
  RunConfig config = quick_config();
  config.workload = "image";
  config.scale.ranks = 2;
  config.batch = {8, 4};
  config.measure.steps = 32;
  config.measure.evaluation_samples = run_.last<EvalEvent>().samples;
  run_.last<ConfigEvent>().config.text = to_json_text(config);
  write_run(run_, folder_.path());
  EXPECT_EQ(plan().config.measure.evaluation_samples, config.measure.evaluation_samples);
}

TEST_F(Resume, RefusesWhatWouldBeAnotherTrainingAllAtOnce) {
  const std::string text =
      problem({{"seed", "7", "--seed"}, {"optimizer.learning_rate", "1"}, {"comm.timeout_s", "9"}});
  EXPECT_NE(text.find("--seed 7 is not possible here"), std::string::npos) << text;
  EXPECT_NE(text.find("optimizer.learning_rate"), std::string::npos) << text;
  EXPECT_EQ(text.find("comm.timeout_s"), std::string::npos) << text;
}

TEST_F(Resume, RefusesToGoOnPastTheLastStep) {
  EXPECT_NE(problem({{"measure.steps", "20"}}).find("no step is left of 20"), std::string::npos);
  EXPECT_EQ(plan({{"measure.steps", "21"}}).config.measure.steps, 21u);
  EXPECT_EQ(plan({{"measure.duration_s", "5"}}).config.measure.steps, 0u);
  EXPECT_EQ(plan({{"measure.until_percent", "1"}}).config.measure.steps, 0u);
}

TEST_F(Resume, RefusesACheckpointOfAnotherModel) {
  run_.last<WorkloadEvent>().graph_hash = std::string(32, '0');
  save_parameters(run_, folder_.path(), 30, {1});
  EXPECT_NE(problem().find("is of another model"), std::string::npos) << problem();
}

TEST_F(Resume, RefusesRunsThatCannotGoOn) {
  const auto problem_of = [&](const SampleRun& run) {
    const TemporaryFolder other;
    write_run(run, other.path());
    return message_of<UserError>([&] { plan_resume({other.path(), {}, {}}); });
  };
  EXPECT_NE(problem_of(run_).find("has no checkpoint"), std::string::npos);
  EXPECT_NE(problem_of(search_run()).find("no one model"), std::string::npos)
      << problem_of(search_run());
  SampleRun early = run_;
  early.erase_all<WorkloadEvent>();
  EXPECT_NE(problem_of(early).find("cannot go on"), std::string::npos);

  std::ofstream(folder_.path() / "suite.json") << "{}";
  EXPECT_NE(problem().find("is a suite"), std::string::npos);
  EXPECT_NE(message_of<UserError>([&] {
              plan_resume({folder_.path() / "none", {}, {}});
            }).find("no such run"),
            std::string::npos);
}

TEST_F(Resume, TheSameTrainingGoesOnAndAnyOtherIsRefused) {
  const ParentRun parent = *plan().config.parent;
  EXPECT_NO_THROW(check_continues(parent, parent.training));
  TrainingIdentity other = parent.training;
  for (IdentityField& field : other) {
    if (field.name == "samples_per_step") field.value = "32";
    if (field.name == "data_fingerprint") field.value = "f";
  }
  other.push_back({"optimizer.total_steps", "9"});
  const std::string text = message_of<UserError>([&] { check_continues(parent, other); });
  EXPECT_NE(text.find("samples_per_step of this training is 32"), std::string::npos) << text;
  EXPECT_NE(text.find("data_fingerprint of this training is f"), std::string::npos) << text;
  EXPECT_NE(text.find("optimizer.total_steps of this training is 9"), std::string::npos) << text;
}

}  // namespace
}  // namespace heteroperf
