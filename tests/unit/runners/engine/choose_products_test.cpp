#include "runners/engine/probe/measure_operations.hpp"

#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <map>

#include "runners/engine/operators/product.hpp"
#include "runners/plan/even_plan.hpp"
#include "workloads/workload_factories.hpp"

namespace heteroperf {
namespace {

TrainingSpec spec_of(const std::string& model, const EvenPlanRequest& layout,
                     Precision precision = Precision::fp32) {
  WorkloadRequest request;
  request.size = request.model = model;
  request.precision = precision;
  const Workload workload = model == "nano" ? make_llm(request, {}) : make_image(request, {});
  TrainingSpec spec;
  spec.graph = workload.graph;
  spec.data = workload.data;
  spec.recipe = workload.recipe;
  spec.precision = precision;
  spec.use_plan(even_plan(spec.graph, layout));
  return spec;
}

bool makes(const std::set<ProductShape>& shapes, const ProductShape& shape) {
  return shapes.contains(shape);
}

/// nano: 128 wide, sequences of 64 tokens; its head and its first layer belong to other ranks.
TEST(ProductsOf, AreThoseOfTheRanksOwnLayers) {
  const TrainingSpec whole = spec_of("nano", {.micro_batch = 4});
  const std::set<ProductShape> all = products_of(whole, RankId(0));
  const std::int64_t width = 128;
  std::int64_t tokens = 0;
  for (const ProductShape& shape : all) tokens = std::max(tokens, shape.extents[0]);
  const auto of = ProductShape::of_matrices;
  EXPECT_TRUE(makes(all, of(tokens, width, 4 * width, false, true))) << "forward";
  EXPECT_TRUE(makes(all, of(tokens, 4 * width, width, false, false))) << "gradient of the input";
  EXPECT_TRUE(makes(all, of(4 * width, tokens, width, true, false))) << "of the weights";
  const TrainingSpec cut = spec_of("nano", {.tensor = 2, .micro_batch = 4});
  EXPECT_TRUE(makes(products_of(cut, RankId(1)), of(tokens, width, 2 * width, false, true)));
  const TrainingSpec halves = spec_of("nano", {.pipeline = 2, .micro_batch = 4});
  EXPECT_LT(products_of(halves, RankId(0)).size(), all.size()) << "the head is on rank 1";
}

TEST(ProductsOf, AreNoneWithoutAChoice) {
  EXPECT_TRUE(products_of(spec_of("nano", {}, Precision::bf16), RankId(0)).empty());
  TrainingSpec on_gpu = spec_of("nano", {});
  on_gpu.gpu = 0;
  EXPECT_TRUE(products_of(on_gpu, RankId(0)).empty());
}

/// The first convolution has no gradient of its input, and the last layer is a product of matrices.
TEST(ProductsOf, AClassifierHasThemInItsConvolutions) {
  const std::set<ProductShape> shapes =
      products_of(spec_of("resnet18", {.micro_batch = 2}), RankId(0));
  std::map<ProductKind, int> counts;
  for (const ProductShape& shape : shapes) ++counts[shape.kind];
  EXPECT_EQ(counts[ProductKind::conv], 11);
  EXPECT_EQ(counts[ProductKind::conv_weight], 11);
  EXPECT_EQ(counts[ProductKind::conv_input], 10);
  EXPECT_EQ(counts[ProductKind::nt], 1);
}

/// A noted product is neither computed nor lost: the same operators multiply again afterwards.
TEST(ProductsOf, LeaveTheThreadAsItWas) {
  products_of(spec_of("nano", {}), RankId(0));
  const c10::InferenceMode no_tape;
  ProductNotes notes;
  EXPECT_TRUE(notes.shapes().empty());
}

/// The third shape would take minutes on a slow machine: a smaller one stands for it.
TEST(TimeProducts, OfEveryWayThatIsThere) {
  const std::vector<ProductShape> shapes{
      ProductShape::of_matrices(64, 32, 48, false, true),
      ProductShape::of_matrices(32, 4096, 48, true, false),
      ProductShape::of_matrices(100000, 3000, 2000),
      {ProductKind::conv, {2, 3, 9, 7, 5, 3, 3, 2, 2, 1, 1}},
      {ProductKind::conv_input, {2, 3, 9, 7, 5, 3, 3, 1, 1, 0, 0}},
      {ProductKind::conv_weight, {1000, 64, 32, 32, 64, 3, 3, 1, 1, 1, 1}}};
  const std::vector<ProductTimes> times = time_products(shapes, 1, 0.01);
  ASSERT_EQ(times.size(), shapes.size());
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    for (std::size_t w = 0; w < product_ways; ++w) {
      const auto way = static_cast<ProductWay>(w);
      EXPECT_EQ(times[i][w] > 0, offers(shapes[i], way) && has_product_way(way))
          << to_string(shapes[i]) << " by " << to_string(way);
    }
  }
}

}  // namespace
}  // namespace heteroperf
