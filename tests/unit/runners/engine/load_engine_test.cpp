#include <gtest/gtest.h>

#include "metrics/error.hpp"
#include "runners/comm/communicator.hpp"
#include "runners/engine/engine.hpp"
#include "tests/unit/runners/engine/small_trainings.hpp"

namespace heteroperf {
namespace {

// This program does not link LibTorch: everything below happens behind the module's door.
TEST(LoadEngine, TrainsThroughTheModule) {
  const std::shared_ptr<Engine> engine = load_engine();
  const auto alone = make_null_communicator();
  const auto session = engine->start(test::small_training(test::tiny_gpt()), *alone, nullptr);
  const double first = session->step().loss;
  for (int i = 0; i < 10; ++i) session->step();
  EXPECT_LT(session->step().loss, first);
}

TEST(LoadEngine, ErrorsOfTheModuleKeepTheirType) {
  TrainingSpec spec = test::small_training(test::tiny_gpt());
  spec.plan.stages[0].replicas[0].micro_batch = 0;
  const auto alone = make_null_communicator();
  EXPECT_THROW(load_engine()->start(spec, *alone, nullptr), UserError);
}

TEST(LoadEngine, TellsItsVersion) {
  const EngineStatus status = engine_status();
  EXPECT_TRUE(status.built);
  EXPECT_TRUE(status.usable) << status.reason;
  EXPECT_EQ(status.version.rfind("2.", 0), 0U);
}

TEST(LoadEngine, MeasuresAPlausiblePeak) {
  const double rate = load_engine()->measure_peak_ops_per_second(Precision::fp32, 1, 0.2);
  EXPECT_GT(rate, 1e8);
  EXPECT_LT(rate, 1e14);
}

}  // namespace
}  // namespace heteroperf
