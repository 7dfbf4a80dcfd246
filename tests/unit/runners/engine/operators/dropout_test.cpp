#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "tests/unit/runners/engine/operators/operator_check.hpp"
#include "tests/unit/runners/engine/operators/small_graphs.hpp"

namespace heteroperf {
namespace {

constexpr std::int64_t features = 1031;

at::Tensor mask(double p, std::int64_t batch, const PassContext& context,
                at::ScalarType type = at::kDouble) {
  ModelGraph graph;
  const NodeId node = graph.add("dropout", Dropout{p}, {add_vector(graph, features)});
  Tensors saved;
  const at::Tensor ones = at::ones({batch, features}, at::TensorOptions().dtype(type));
  const at::Tensor y = make_operator(graph, node, type)->forward({ones}, {}, saved, context);
  EXPECT_TRUE(saved.empty());
  return y;
}

double kept_share(const at::Tensor& mask) {
  return mask.ne(0).to(at::kDouble).mean().item<double>();
}

TEST(Dropout, KeepsTheStatedShareAndScalesIt) {
  for (const double p : {0.1, 0.5, 0.9}) {
    const at::Tensor m = mask(p, 200, {});
    const double deviation = std::sqrt(p * (1.0 - p) / static_cast<double>(m.numel()));
    EXPECT_NEAR(kept_share(m), 1.0 - p, 5.0 * deviation);
    EXPECT_DOUBLE_EQ(m.max().item<double>(), 1.0 / (1.0 - p));
  }
}

TEST(Dropout, NeighbouringElementsAreUncorrelated) {
  const at::Tensor kept = mask(0.5, 200, {}).ne(0).to(at::kDouble) - 0.5;
  const double deviation = 0.25 / std::sqrt(static_cast<double>(kept.numel()));
  for (const std::int64_t lag : {1, 2, 3, 32, 256}) {
    const at::Tensor a = kept.narrow(1, 0, features - lag), b = kept.narrow(1, lag, features - lag);
    EXPECT_NEAR((a * b).mean().item<double>(), 0.0, 5.0 * deviation) << lag;
  }
  const at::Tensor a = kept.narrow(0, 0, 199), b = kept.narrow(0, 1, 199);
  EXPECT_NEAR((a * b).mean().item<double>(), 0.0, 5.0 * deviation);
}

TEST(Dropout, DependsOnTheGlobalSampleNotOnTheBatch) {
  PassContext whole;
  whole.seed = 5;
  whole.step = 2;
  whole.node = 9;
  const at::Tensor all = mask(0.4, 8, whole);
  PassContext part = whole;
  for (const std::int64_t count : {1, 3, 4}) {
    EXPECT_TRUE(mask(0.4, count, part)
                    .equal(all.narrow(0, static_cast<std::int64_t>(part.first_sample), count)));
    part.first_sample += static_cast<std::uint64_t>(count);
  }
}

TEST(Dropout, EveryKeyChangesTheMask) {
  PassContext base;
  const at::Tensor original = mask(0.5, 4, base);
  PassContext other = base;
  other.seed = 1;
  EXPECT_FALSE(mask(0.5, 4, other).equal(original));
  other = base;
  other.step = 1;
  EXPECT_FALSE(mask(0.5, 4, other).equal(original));
  other = base;
  other.node = 1;
  EXPECT_FALSE(mask(0.5, 4, other).equal(original));
}

TEST(Dropout, IsTheSameMaskInEveryType) {
  const at::Tensor kept = mask(0.3, 4, {}).ne(0);
  EXPECT_TRUE(mask(0.3, 4, {}, at::kFloat).ne(0).equal(kept));
  EXPECT_TRUE(mask(0.3, 4, {}, at::kBFloat16).ne(0).equal(kept));
}

TEST(Dropout, IsTheIdentityInEvaluation) {
  PassContext context;
  context.mode = Mode::evaluate;
  EXPECT_TRUE(mask(0.7, 4, context).eq(1.0).all().item<bool>());
}

}  // namespace
}  // namespace heteroperf
