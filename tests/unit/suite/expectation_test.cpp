
#include <gtest/gtest.h>

#include "suite/run/prepare.hpp"
#include "suite/training/group_trainer.hpp"
#include "workloads/workload_factories.hpp"

namespace heteroperf {
namespace {

/// An emulated run whose step is predicted to take 23 modelled seconds.
PreparedRun slow_run(double duration_s, std::uint64_t steps) {
  RunConfig config;
  config.workload = "llm";
  config.model.size = "nano";
  config.measure.duration_s = duration_s;
  config.measure.steps = steps;
  Placement placement;
  placement.ranks = 1;
  placement.bindings.resize(1);
  PreparedRun run = prepare_runs(config, {}, placement, 1).front();
  run.plan->prediction.emplace();
  run.plan->prediction->step_time_s = 23;
  run.plan->emulated = true;
  return run;
}

TEST(Expectation, SaysStepsTimeAndWhichDurationWouldDo) {
  const auto lines = prediction_lines(slow_run(60, 0), 0);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_NE(lines[0].find("about 23 s"), std::string::npos) << lines[0];
  EXPECT_NE(lines[0].find("2 of warm-up and 3 measured take about 115 s"), std::string::npos)
      << lines[0];
  EXPECT_NE(lines[1].find("--duration 460"), std::string::npos) << lines[1];
  EXPECT_NE(lines[1].find("--steps 22"), std::string::npos) << lines[1];
}

TEST(Expectation, ItsOwnAdviceIsEnough) {
  EXPECT_EQ(prediction_lines(slow_run(460, 0), 0).size(), 1u);
  EXPECT_EQ(prediction_lines(slow_run(60, 22), 0).size(), 1u);
  EXPECT_EQ(prediction_lines(slow_run(60, 21), 0).size(), 2u);
}

TEST(Expectation, AMachineThatCannotKeepUpStretchesTheStep) {
  PreparedRun run = slow_run(60, 0);
  EXPECT_EQ(prediction_lines(run, 1e15)[0], prediction_lines(run, 0)[0]);
  EXPECT_NE(prediction_lines(run, 1e8)[0], prediction_lines(run, 0)[0]);
  run.config.pace.dilation = 2;
  EXPECT_NE(prediction_lines(run, 1e8)[0].find("about 46 s"), std::string::npos);
}

TEST(Expectation, NothingIsPredictedWithoutAPrediction) {
  PreparedRun run = slow_run(60, 0);
  run.plan->prediction.reset();
  EXPECT_TRUE(prediction_lines(run, 0).empty());
  EXPECT_EQ(course_text(run),
            "llm nano on 1 rank: set-up, 2 steps of warm-up, 60 s measured, 512 samples evaluated");
}

/// The end of what a run of `image` says it will do.
std::string evaluated(const RunConfig& base, const std::string& source, bool emulated) {
  RunConfig config = base;
  config.workload = "image";
  config.data.source = source;
  Placement placement;
  placement.ranks = 1;
  placement.bindings.resize(1);
  PreparedRun run = prepare_runs(config, {}, placement, 1).front();
  run.plan->emulated = emulated;
  const std::string text = course_text(run);
  return text.substr(text.rfind(", ") + 2);
}

TEST(Expectation, AClassifierIsEvaluatedUntilItsErrorIsKnown) {
  EXPECT_EQ(evaluated({}, "generated", false), "512 samples or more evaluated");
  EXPECT_EQ(evaluated({}, "generated", true), "512 samples evaluated");
  EXPECT_EQ(evaluated(quick_config(), "generated", false), "128 samples evaluated");
}

TEST(Expectation, AFinalEvaluationHasAnEnd) {
  RunConfig config;
  WorkloadRequest request;
  request.size = "w16";
  const Workload search = make_automl_image(request, {});
  config.automl.evaluation_samples = 64;
  EvaluationExtent extent = final_extent(config, search, nullptr);
  EXPECT_TRUE(extent.is_final);
  EXPECT_EQ(extent.first, 64u) << "trials were judged on those before";
  EXPECT_EQ(extent.fewest, 64u);
  EXPECT_EQ(extent.most, 16384u);
  EXPECT_EQ(extent.wrong, 100u);
  config.automl.evaluation_samples = 20000;
  EXPECT_EQ(final_extent(config, search, nullptr).most, 20000u) << "more where they are asked for";
  config.quick = true;
  extent = final_extent(config, search, nullptr);
  EXPECT_EQ(extent.most, extent.fewest);
  EXPECT_EQ(extent.wrong, 0u);
}

}  // namespace
}  // namespace heteroperf
