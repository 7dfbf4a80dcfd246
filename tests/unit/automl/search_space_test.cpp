#include "automl/search_space.hpp"

#include <gtest/gtest.h>

#include "automl/trial.hpp"
#include "metrics/error.hpp"
#include "tests/unit/automl/sample_graphs.hpp"

namespace heteroperf {
namespace {

TEST(SearchSpace, TheDefaultIsValid) { EXPECT_NO_THROW(validate(SearchSpace{})); }

TEST(SearchSpace, ReportsAllProblemsAtOnce) {
  SearchSpace space;
  space.dropout_max = 1.0;
  space.kernels = {3, 4};
  space.batches = {};
  space.learning_rate_min = 0.0;
  space.max_ops_ratio = 0.5;
  space.max_layers = 0;
  try {
    validate(space);
    FAIL();
  } catch (const UserError& error) {
    EXPECT_EQ(error.problems().size(), 6u) << error.what();
  }
}

TEST(SearchSpace, RefusesWhatIsNotANumber) {
  SearchSpace space;
  space.dropout_min = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THROW(validate(space), UserError);
  space = {};
  space.learning_rate_max = std::numeric_limits<double>::infinity();
  EXPECT_THROW(validate(space), UserError);
}

TEST(SearchSpace, TheOperationLimitIsRelativeToTheInitialModel) {
  SearchSpace space;
  space.max_ops_ratio = 2.5;
  const ModelGraph graph = small_resnet();
  EXPECT_EQ(limits_for(space, graph).max_ops_per_sample, training_ops_per_sample(graph) * 5 / 2);
}

}  // namespace
}  // namespace heteroperf
