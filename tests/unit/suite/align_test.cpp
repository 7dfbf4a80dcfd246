#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "metrics/base/error.hpp"
#include "suite/verification/align_runs.hpp"
#include "tests/unit/suite/recorded_training.hpp"

namespace heteroperf {
namespace {

namespace fs = std::filesystem;

/// Calls change(step) for every step of the run.
template <class Change>
void change_steps(SampleRun& run, Change change) {
  for (JournalLine& line : run.lines) {
    if (auto* step = std::get_if<StepEvent>(&line.event)) change(*step);
  }
}

class Align : public testing::Test {
 protected:
  Align() { b_.last<StartEvent>().run_id = "20260101T111500Z-image-4567cdef"; }
  Alignment align(const AcceptanceRule& rule = {}) const {
    write_run(a_, folder_.path() / "a");
    write_run(b_, folder_.path() / "b");
    return align_runs(folder_.path() / "a", folder_.path() / "b", rule);
  }
  fs::path run_a() const { return folder_.path() / "a"; }
  fs::path run_b() const { return folder_.path() / "b"; }

  TemporaryFolder folder_;
  SampleRun a_ = recorded_training(), b_ = recorded_training();
};

TEST_F(Align, ARunIsNotComparedWithItself) {
  write_run(a_, run_a());
  write_run(a_, folder_.path() / "copy");
  for (const fs::path& other : {run_a(), folder_.path() / "copy"}) {
    const std::string refusal = message_of<UserError>([&] { align_runs(run_a(), other, {}); });
    EXPECT_NE(refusal.find("is A and B"), std::string::npos) << refusal;
  }
}

TEST_F(Align, EqualRunsAreAlignedBitForBit) {
  const Alignment found = align({0.0});
  EXPECT_TRUE(found.ok());
  EXPECT_EQ(found.steps.size(), 32u);
  EXPECT_EQ(found.max_relative, 0.0);
  EXPECT_EQ(found.parameters_missing, "the runs have no checkpoints (checkpoint.at_end makes one)");
}

TEST_F(Align, TheMeanDecidesAndTheLargestIsTold) {
  change_steps(a_, [](StepEvent& step) {
    if (step.n == 5) step.loss *= 1.32, step.gradient_norm *= 0.5;
  });
  const Alignment found = align();
  EXPECT_NEAR(found.mean_relative, 0.01, 1e-12);
  EXPECT_NEAR(found.max_relative, 0.32, 1e-12);
  EXPECT_NEAR(found.gradient_norm_max_relative, 0.5, 1e-12);
  EXPECT_TRUE(found.ok());
  EXPECT_FALSE(align({0.009}).ok());
}

TEST_F(Align, OnlyCommonStepsCount) {
  change_steps(b_, [](StepEvent& step) { step.n += 30; });
  const Alignment found = align();
  ASSERT_EQ(found.steps.size(), 2u);
  EXPECT_EQ(found.steps[0].n, 30u);
  change_steps(b_, [](StepEvent& step) { step.n += 30; });
  EXPECT_NE(message_of<Error>([&] { align(); }).find("no step in common"), std::string::npos);
}

TEST_F(Align, ALossThatIsNotFiniteIsNeverAligned) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (SampleRun* run : {&a_, &b_}) {
    change_steps(*run, [&](StepEvent& step) {
      if (step.n == 31) step.loss = nan;
    });
    const Alignment found = align({1e300});
    EXPECT_FALSE(found.ok());
    const auto json = nlohmann::json::parse(json_text(alignment_document(found)));
    EXPECT_EQ(json["ok"], false);
    EXPECT_FALSE(json["acceptance"].contains("value"));
    EXPECT_FALSE(json["steps"][31].contains("relative"));
  }
}

TEST_F(Align, OtherTrainingsAreNotComparableAndEveryFieldIsNamed) {
  auto& workload = b_.last<WorkloadEvent>();
  workload.graph_hash = std::string(32, '0');
  workload.samples_per_step = 32;
  workload.seeds = {{"run", 7}};
  workload.config.text = R"({"optimizer":{"kind":"sgd","learning_rate":0.2}})";
  workload.precision = "bf16";  // may differ
  try {
    align();
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::not_comparable);
    ASSERT_EQ(error.problems().size(), 4u) << error.what();
    EXPECT_EQ(error.problems()[0].problem, "graph_hash differs");
    EXPECT_EQ(error.problems()[1].text(), "samples_per_step differs (64 in A, 32 in B)");
    EXPECT_EQ(error.problems()[2].problem, "seed differs");
    EXPECT_EQ(error.problems()[3].problem, "optimizer.learning_rate differs");
  }
}

TEST_F(Align, ASearchHasNoOneModel) {
  a_ = b_ = search_run();
  EXPECT_NE(message_of<UserError>([&] { align(); }).find("no one model"), std::string::npos);
}

TEST_F(Align, ParametersOfTheNewestCommonCheckpointAreCompared) {
  for (const std::uint64_t step : {10u, 20u}) save_parameters(a_, run_a(), step, {1, 2, 4.5f});
  for (const std::uint64_t step : {10u, 20u, 30u}) save_parameters(b_, run_b(), step, {1, 2, 4});
  const Alignment found = align();
  EXPECT_EQ(found.parameter_step, 20u);
  ASSERT_EQ(found.parameters.size(), 2u) << "optimizer states do not count";
  EXPECT_EQ(found.parameters[0].name, "hidden.weight");
  EXPECT_EQ(found.parameters[0].max_relative, 0.125);
  EXPECT_EQ(found.parameters[1].max_relative, 0.0);

  const auto json = nlohmann::json::parse(json_text(alignment_document(found)));
  EXPECT_EQ(json["parameters"][0]["max_relative"], 0.125);
  EXPECT_EQ(json["acceptance"]["limit"], 0.015);
  EXPECT_EQ(json["steps"].size(), 32u);
  EXPECT_EQ(json["gradient_norm"]["max_relative"], 0.0);
}

TEST_F(Align, ABrokenCheckpointIsSkippedWithAWarning) {
  for (const std::uint64_t step : {10u, 20u}) {
    save_parameters(a_, run_a(), step, {1});
    save_parameters(b_, run_b(), step, {1});
  }
  fs::remove(run_a() / "checkpoints" / "step-20" / "rank-0.safetensors");
  const Alignment found = align();
  EXPECT_EQ(found.parameter_step, 10u);
  EXPECT_EQ(found.warnings.size(), 1u);
  fs::remove(run_b() / "checkpoints" / "step-10" / "index.json");
  EXPECT_EQ(align().parameters_missing, "the runs have no whole checkpoints of one step");
}

TEST_F(Align, TheTableSaysWhatDecided) {
  change_steps(a_, [](StepEvent& step) { step.loss *= 1.1; });
  const std::string table = console_text(alignment_document(align()));
  EXPECT_NE(table.find("NOT ALIGNED: mean over steps"), std::string::npos) << table;
  EXPECT_NE(table.find("the 10 steps furthest apart of 32"), std::string::npos) << table;
  EXPECT_NE(table.find("parameters were not compared: the runs have no checkpoints"),
            std::string::npos)
      << table;
}

TEST_F(Align, ABandNeedsTheFirstStepAndAConfiguration) {
  const auto refusal = [&] {
    write_run(a_, run_a());
    write_run(b_, run_b());
    return message_of<Error>([&] { align_runs(run_a(), run_b(), {}, NoiseRequest()); });
  };
  a_.last<StartEvent>().parent = b_.last<StartEvent>().parent = "20260101T101500Z-image-aaaaaaaa";
  EXPECT_NE(refusal().find("it goes on from 20260101T101500Z-image-aaaaaaaa"), std::string::npos)
      << refusal();
  for (SampleRun* run : {&a_, &b_}) {
    change_steps(*run, [](StepEvent& step) { step.n += 4; });
  }
  EXPECT_NE(refusal().find("no first step in common"), std::string::npos) << refusal();
}

// Rounding grows, so what the last step may differ by says nothing of the first.
TEST(NoiseBandOf, GrowsWithTheSteps) {
  const NoiseBand band = noise_band({{2, 1}, {2, 1.5}, {2.002, 1.1}});
  EXPECT_EQ(band.runs, 3);
  ASSERT_EQ(band.by_step.size(), 2u);
  EXPECT_NEAR(band.by_step[0], 0.001, 1e-12);
  EXPECT_NEAR(band.by_step[1], 0.5, 1e-12);
  EXPECT_NEAR(band.limit(1), 1.5, 1e-12);
  const auto limit_of = [&](std::size_t n) { return band.limit(n); };
  const std::vector<double> reference{2, 1};
  EXPECT_FALSE(parted_at(std::vector<double>{2.005, 2.4}, reference, limit_of));
  EXPECT_EQ(parted_at(std::vector<double>{2.007, 1}, reference, limit_of), 0u);
  EXPECT_EQ(parted_at(std::vector<double>{2, NAN}, reference, limit_of), 1u);
}

}  // namespace
}  // namespace heteroperf
