#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "metrics/base/error.hpp"
#include "runners/comm/communicator.hpp"
#include "runners/comm/world.hpp"
#include "runners/engine/module/torch_engine.hpp"
#include "runners/plan/even_plan.hpp"
#include "tests/unit/runners/engine/small_trainings.hpp"

namespace heteroperf {
namespace {

/// Why no GPU can be used; empty where one can.
std::string missing_gpu() {
  try {
    make_torch_engine()->cuda_devices();
    return {};
  } catch (const SystemError& error) {
    EXPECT_EQ(error.kind(), ErrorKind::environment);
    return error.what();
  }
}

TEST(CudaTraining, IsRefusedWithAReasonWhereThereIsNoGpu) {
  const std::string reason = missing_gpu();
  if (reason.empty()) GTEST_SKIP() << "a GPU is here";
  EXPECT_NE(reason.find("no GPU can be used"), std::string::npos) << reason;
  TrainingSpec spec = test::small_training(test::tiny_gpt());
  spec.gpu = 0;
  const auto alone = make_null_communicator();
  EXPECT_THROW(make_torch_engine()->start(spec, *alone, nullptr), SystemError);
}

TEST(CudaTraining, IsNotEmulated) {
  TrainingSpec spec = test::small_training(test::tiny_gpt());
  spec.gpu = 0;
  spec.pacing.emplace();
  const auto alone = make_null_communicator();
  EXPECT_THROW(make_torch_engine()->start(spec, *alone, nullptr), UserError);
}

/// Largest distance of losses and gradient norms over some steps, and of the evaluation's loss.
double distance_to_cpu(TrainingSpec spec, int steps) {
  const auto alone = make_null_communicator();
  const auto engine = make_torch_engine();
  const auto host = engine->start(spec, *alone, nullptr);
  spec.gpu = 0;
  const auto device = engine->start(spec, *alone, nullptr);
  double largest = 0;
  const auto compare = [&](double a, double b) {
    largest = std::max(largest, std::abs(a - b) / std::abs(b));
  };
  for (int i = 0; i < steps; ++i) {
    const StepReport here = host->step(), there = device->step();
    compare(there.loss, here.loss);
    compare(there.gradient_norm, here.gradient_norm);
  }
  compare(device->evaluate(20).loss, host->evaluate(20).loss);
  return largest;
}

TEST(CudaTraining, GivesWhatTheCpuGives) {
  if (const std::string reason = missing_gpu(); !reason.empty()) GTEST_SKIP() << reason;
  for (const ModelGraph& graph :
       {test::tiny_gpt(0.1), test::tiny_llama(), test::tiny_cnn(0.1), test::tiny_vit()}) {
    EXPECT_LE(distance_to_cpu(test::small_training(graph, Precision::fp64), 10), 1e-10);
    EXPECT_LE(distance_to_cpu(test::small_training(graph, Precision::fp32), 10), 1e-3);
  }
}

/// Losses of all steps, with rank 0 on the GPU and the others where `others` says.
std::vector<double> losses_of(const TrainingSpec& spec, std::optional<int> first,
                              std::optional<int> others) {
  std::vector<double> losses;
  run_on_threads(spec.plan().ranks(), {}, [&](World& world) {
    const bool is_first = world.communicator->rank() == RankId(0);
    TrainingSpec own = spec;
    own.gpu = is_first ? first : others;
    const auto session = make_torch_engine()->start(own, *world.communicator, nullptr);
    for (int step = 0; step < 5; ++step) {
      const double loss = session->step().loss;
      if (is_first) losses.push_back(loss);
    }
  });
  return losses;
}

// Borders between stages, tensor-parallel sums, sums of gradients: through the host's memory.
TEST(CudaTraining, ManyRanksGiveWhatTheCpuGivesOnOneKindOrMixed) {
  if (const std::string reason = missing_gpu(); !reason.empty()) GTEST_SKIP() << reason;
  TrainingSpec spec = test::small_training(test::tiny_gpt(), Precision::fp64);
  for (const auto& [pipeline, tensor, data] : {std::array{2, 1, 1}, {1, 2, 1}, {1, 1, 2}}) {
    spec.use_plan(even_plan(spec.graph, {.pipeline = pipeline,
                                         .tensor = tensor,
                                         .data = data,
                                         .micro_batch = 2,
                                         .micro_batches = 2}));
    const std::vector<double> host = losses_of(spec, std::nullopt, std::nullopt);
    for (const std::vector<double>& there :
         {losses_of(spec, 0, 0), losses_of(spec, 0, std::nullopt)}) {
      ASSERT_EQ(there.size(), host.size());
      for (std::size_t i = 0; i < host.size(); ++i) EXPECT_NEAR(there[i], host[i], 1e-10);
    }
  }
}

TEST(CudaTraining, ExecutesTheOperationsItCounts) {
  if (const std::string reason = missing_gpu(); !reason.empty()) GTEST_SKIP() << reason;
  for (const Precision precision : {Precision::fp64, Precision::fp32, Precision::bf16}) {
    TrainingSpec spec = test::small_training(test::tiny_gpt(), precision);
    spec.gpu = 0;
    const auto alone = make_null_communicator();
    const auto session = make_torch_engine()->start(spec, *alone, nullptr);
    ObservedOperations observed;
    session->step(&observed);
    EXPECT_EQ(observed.executed, session->operations().strict);
    EXPECT_TRUE(observed.unknown.empty());
  }
}

}  // namespace
}  // namespace heteroperf
