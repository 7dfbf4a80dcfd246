#include "workloads/search_space.hpp"

#include <gtest/gtest.h>

#include "workloads/graph/graph_counts.hpp"
#include "workloads/workload_factories.hpp"

namespace heteroperf {
namespace {

TEST(SearchSpace, ARunsBatchesAreAroundItsMicroBatch) {
  EXPECT_EQ(search_space_around(32).batches, (std::vector<std::int64_t>{16, 32, 64}));
  EXPECT_EQ(search_space_around(1).batches, (std::vector<std::int64_t>{1, 1, 2}));
}

TEST(SearchSpace, TheOperationLimitIsRelativeToTheInitialModel) {
  SearchSpace space;
  space.max_ops_ratio = 2.5;
  const ModelGraph graph = search_start("w16", generated_sample(""));
  EXPECT_EQ(limits_for(space, graph).max_ops_per_sample, strict_train_ops(graph, 1) * 5 / 2);
}

}  // namespace
}  // namespace heteroperf
