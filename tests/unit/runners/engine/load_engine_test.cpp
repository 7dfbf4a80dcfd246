#include <gtest/gtest.h>

#include <algorithm>

#include "metrics/base/error.hpp"
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
  spec.data = std::make_shared<test::RandomSamples>(spec.data->spec(), 0);
  const auto alone = make_null_communicator();
  EXPECT_THROW(load_engine()->start(spec, *alone, nullptr), UserError);
}

TEST(LoadEngine, TellsItsVersion) {
  const BackendStatus status = engine_file_status();
  EXPECT_TRUE(status.built);
  EXPECT_TRUE(status.usable) << status.reason;
  EXPECT_EQ(load_engine()->libtorch_version().rfind("2.", 0), 0U);
}

TEST(LoadEngine, FindsAProductThatCanBeRepeated) {
  const FastestProduct found = load_engine()->find_fastest_product(Precision::fp32, 1, 0.01);
  EXPECT_GT(found.mm_ops_per_second, 0);
  EXPECT_GT(found.operations, 0);
  ASSERT_FALSE(found.tried.empty());
  EXPECT_EQ(found.tried.front(), "aten::mm");
  const std::string way = found.name.substr(0, found.name.find(' '));
  EXPECT_NE(std::find(found.tried.begin(), found.tried.end(), way), found.tried.end()) << way;
  found.multiply();
}

}  // namespace
}  // namespace heteroperf
