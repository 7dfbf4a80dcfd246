#include "workloads/search_space.hpp"

#include <gtest/gtest.h>

#include "metrics/base/error.hpp"
#include "workloads/graph/graph_counts.hpp"
#include "workloads/workload_factories.hpp"

namespace heteroperf {
namespace {

TEST(SearchSpace, TheDefaultIsValid) { EXPECT_NO_THROW(validate(SearchSpace{})); }

TEST(SearchSpace, ARunsBatchesAreAroundItsMicroBatch) {
  EXPECT_EQ(search_space_around(32).batches, (std::vector<std::int64_t>{16, 32, 64}));
  EXPECT_EQ(search_space_around(1).batches, (std::vector<std::int64_t>{1, 1, 2}));
}

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
  const ModelGraph graph = search_start("w16", generated_sample(""));
  EXPECT_EQ(limits_for(space, graph).max_ops_per_sample, strict_train_ops(graph, 1) * 5 / 2);
}

}  // namespace
}  // namespace heteroperf
