#include "runners/engine/probe/measure_operations.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "workloads/workload_factories.hpp"

namespace heteroperf {
namespace {

Workload workload_of(const std::string& model, Precision precision = Precision::fp32) {
  WorkloadRequest request;
  request.size = request.model = model;
  request.precision = precision;
  return model == "nano" ? make_llm(request, {}) : make_image(request, {});
}

OperationProbeResult measured(const Workload& workload, const ModelOperations& model,
                              double deadline_s = 600,
                              const std::function<bool()>& stop = nullptr) {
  OperationProbe probe{workload.graph, model, workload.data};
  probe.recipe = workload.recipe;
  probe.precision = workload.precision;
  probe.samples = 2;
  probe.micro_batches = 2;
  probe.seconds_each = 1e-6;
  probe.deadline_s = deadline_s;
  probe.stop = stop;
  return measure_operations(probe);
}

/// Whatever is asked for has a time, and nothing else.
void expect_times(const Workload& workload) {
  const ModelOperations model = model_operations(workload.graph, workload.precision);
  const OperationProbeResult result = measured(workload, model);
  ASSERT_EQ(result.operations.size(), model.operations.size());
  for (std::size_t i = 0; i < model.operations.size(); ++i) {
    const FusedWork& work = model.operations[i];
    const OperationSeconds& took = result.operations[i];
    EXPECT_EQ(took.repetitions, 5) << work.operation;
    EXPECT_GT(took.forward_s, 0) << work.operation;
    EXPECT_EQ(took.backward_s > 0, took.input_gradient_s > 0) << work.operation;
    if (work.of(TrainingPass::weight_gradient, 1).any()) {
      EXPECT_GT(took.weight_gradient_s, 0) << work.operation;
    }
    for (const double seconds :
         {took.forward_s, took.input_gradient_s, took.weight_gradient_s, took.backward_s}) {
      EXPECT_TRUE(std::isfinite(seconds) && seconds < 60) << work.operation << " " << seconds;
    }
  }
  EXPECT_GT(result.optimizer_s, 0);
  // Of models beyond 2^26 parameters only those of the measured operations are there.
  const auto parameters = static_cast<std::int64_t>(workload.graph.parameter_count());
  EXPECT_GT(result.optimizer_elements, parameters / 20);
  if (parameters <= (std::int64_t{1} << 26)) {
    EXPECT_GE(result.optimizer_elements, parameters);
  }
  EfficiencyMatrix matrix;
  add_measured(model, 2, workload.precision, result.operations, {"one", "here", "now", "it"},
               matrix);
  EXPECT_GT(matrix.rates().size(), model.operations.size());
}

TEST(MeasureOperations, OfALanguageModel) { expect_times(workload_of("nano")); }
TEST(MeasureOperations, OfAClassifier) { expect_times(workload_of("resnet18")); }
TEST(MeasureOperations, OfATransformerOverImages) { expect_times(workload_of("vit-b-16")); }
TEST(MeasureOperations, InOtherPrecisions) {
  expect_times(workload_of("nano", Precision::bf16));
  expect_times(workload_of("nano", Precision::fp64));
}

TEST(MeasureOperations, EndsAtItsDeadlineAndWhenTold) {
  const Workload workload = workload_of("nano");
  const ModelOperations model = model_operations(workload.graph, workload.precision);
  const OperationProbeResult late = measured(workload, model, 1e-9);
  EXPECT_EQ(late.operations.front().repetitions, 0);
  EXPECT_EQ(late.optimizer_s, 0);
  int asked = 0;
  const OperationProbeResult stopped = measured(workload, model, 600, [&] { return ++asked > 2; });
  EXPECT_EQ(stopped.operations.front().repetitions, 0);
  EXPECT_EQ(asked, 3);
}

}  // namespace
}  // namespace heteroperf
