#include "runners/engine/operators/operator_group.hpp"

#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <numeric>

#include "runners/comm/world.hpp"

namespace heteroperf {
namespace {

at::Tensor numbered(std::int64_t batch, std::int64_t positions, std::int64_t width) {
  at::Tensor tensor =
      at::full({batch, positions, width}, 0.0, at::TensorOptions().dtype(at::kDouble));
  auto* values = tensor.data_ptr<double>();
  std::iota(values, values + tensor.numel(), 1.0);
  return tensor;
}

// 2 x 4 rows on 3 ranks: 2, 3 and 3, across the border of the samples.
TEST(RowExchange, RowsComeBackAsTheWhole) {
  run_on_threads(3, {}, [](World& world) {
    const RowExchange rows(*world.communicator);
    const at::Tensor whole = numbered(2, 4, 5);
    const at::Tensor own = rows.own(whole);
    const std::int64_t first[] = {0, 2, 5}, count[] = {2, 3, 3};
    const int rank = world.communicator->rank().value();
    EXPECT_TRUE(at::equal(own, whole.view({1, 8, 5}).narrow(1, first[rank], count[rank])));
    EXPECT_TRUE(at::equal(rows.gather(own, 2, 4), whole));
  });
}

TEST(RowExchange, SumsAreThoseOfTheWhole) {
  run_on_threads(3, {}, [](World& world) {
    const RowExchange rows(*world.communicator);
    const at::Tensor summand = numbered(2, 4, 5).mul(world.communicator->rank().value() + 1.0);
    EXPECT_TRUE(at::equal(rows.sum(summand), rows.own(numbered(2, 4, 5).mul(6.0))));
  });
}

TEST(RowExchange, FewerRowsThanRanksLeaveSomeWithNone) {
  run_on_threads(4, {}, [](World& world) {
    const RowExchange rows(*world.communicator);
    const at::Tensor whole = numbered(1, 2, 3);
    EXPECT_TRUE(at::equal(rows.gather(rows.own(whole), 1, 2), whole));
    EXPECT_TRUE(at::equal(rows.sum(whole), rows.own(whole.mul(4.0))));
  });
}

}  // namespace
}  // namespace heteroperf
