#include "runners/engine/operators/product.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "metrics/base/random.hpp"
#include "runners/engine/operators/kernel_launch.hpp"
#include "runners/engine/probe/operation_observer.hpp"

namespace heteroperf {
namespace {

enum class Layout { plain, transposed, wider };

at::Tensor drawn(std::int64_t rows, std::int64_t columns, Layout layout, RandomStream& random) {
  const bool transposed = layout == Layout::transposed;
  const std::int64_t lines = transposed ? columns : rows;
  const std::int64_t length = transposed ? rows : columns;
  const std::int64_t stride = length + (layout == Layout::wider ? 5 : 0);
  at::Tensor memory = at::empty({lines, stride}, at::kFloat);
  for (std::int64_t i = 0; i < memory.numel(); ++i) {
    memory.data_ptr<float>()[i] = static_cast<float>(random.unit() - 0.5);
  }
  const at::Tensor matrix = memory.narrow(1, 0, length);
  return transposed ? matrix.t() : matrix;
}

double at_place(const at::Tensor& matrix, std::int64_t row, std::int64_t column) {
  return matrix.data_ptr<float>()[row * matrix.stride(0) + column * matrix.stride(1)];
}

struct Extents {
  std::int64_t rows, inner, columns;
};

/// Holds a product against sums in double, element by element: the error of a sum of k products of
/// numbers up to ½ is at most k · k/4 · 2⁻²⁴, and usually far less.
void expect_product(const Extents& e, std::array<Layout, 3> layouts, Accumulation accumulation,
                    RandomStream& random) {
  const at::Tensor a = drawn(e.rows, e.inner, layouts[0], random);
  const at::Tensor b = drawn(e.inner, e.columns, layouts[1], random);
  const at::Tensor out = drawn(e.rows, e.columns, layouts[2], random);
  const at::Tensor before = out.clone();
  product_into(out, a, b, accumulation);
  const double tolerance = 1e-6 + static_cast<double>(e.inner) * 3e-8;
  for (std::int64_t r = 0; r < e.rows; ++r) {
    for (std::int64_t c = 0; c < e.columns; ++c) {
      double sum = accumulation == Accumulation::add ? at_place(before, r, c) : 0;
      for (std::int64_t k = 0; k < e.inner; ++k) sum += at_place(a, r, k) * at_place(b, k, c);
      ASSERT_NEAR(at_place(out, r, c), sum, tolerance)
          << e.rows << "x" << e.inner << "x" << e.columns << " at " << r << ", " << c;
    }
  }
}

class Products : public ::testing::TestWithParam<ProductWay> {
 protected:
  void SetUp() override {
    if (!has_product_way(GetParam()))
      GTEST_SKIP() << "this machine lacks " << to_string(GetParam());
    use_threads(1);
  }
  void TearDown() override { use_threads(1); }

  c10::InferenceMode no_tape_;
  ProductChoices choices_{GetParam()};
};

/// Extents around whole tiles of every instruction set, and beyond the blocks that are packed.
TEST_P(Products, AreSumsOfProductsInAnyLayout) {
  const ProductScope scope(&choices_);
  constexpr std::array<Layout, 3> layouts{Layout::plain, Layout::transposed, Layout::wider};
  RandomStream random(7);
  for (int trial = 0; trial < 120; ++trial) {
    const auto extent = [&] { return static_cast<std::int64_t>(1 + random.below(70)); };
    const std::array<Layout, 3> chosen{layouts[random.below(3)], layouts[random.below(3)],
                                       layouts[random.below(3)]};
    expect_product({extent(), extent(), extent()}, chosen,
                   random.below(2) == 0 ? Accumulation::add : Accumulation::overwrite, random);
  }
  for (const Extents& e : {Extents{1, 1, 1}, {170, 3, 2}, {337, 257, 33}, {3, 513, 2050}}) {
    for (const Layout layout : layouts) {
      expect_product(e, {layout, layout, layout}, Accumulation::add, random);
    }
  }
}

TEST_P(Products, OfNoTermsAreZero) {
  const ProductScope scope(&choices_);
  const at::Tensor a = at::empty({3, 0}), b = at::empty({0, 5});
  const at::Tensor out = at::full({3, 5}, 7.0);
  product_into(out, a, b, Accumulation::add);
  EXPECT_EQ(at_place(out, 2, 4), 7);
  product_into(out, a, b, Accumulation::overwrite);
  EXPECT_EQ(at_place(out, 2, 4), 0);
  EXPECT_EQ(product(at::empty({0, 4}), at::empty({4, 2})).numel(), 0);
}

TEST_P(Products, AreCountedOnce) {
  const ProductScope scope(&choices_);
  OperationObserver observer;
  product(at::full({3, 4}, 1.0), at::full({4, 5}, 1.0));
  EXPECT_EQ(observer.observed().executed, Ops(2 * 3 * 4 * 5));
  EXPECT_EQ(observer.observed().calls, 1U);
  EXPECT_TRUE(observer.observed().unknown.empty());
}

/// Not a number and infinity pass through, as arithmetic has them.
TEST_P(Products, HideNoNumberThatIsNotFinite) {
  const ProductScope scope(&choices_);
  at::Tensor a = at::full({20, 40}, 1.0), b = at::full({40, 30}, 1.0);
  a.data_ptr<float>()[3 * 40 + 5] = std::nanf("");
  b.data_ptr<float>()[7 * 30 + 2] = INFINITY;
  const at::Tensor out = product(a, b);
  EXPECT_TRUE(std::isnan(at_place(out, 3, 0)));
  EXPECT_TRUE(std::isinf(at_place(out, 0, 2)));
  EXPECT_EQ(at_place(out, 0, 0), 40);
}

INSTANTIATE_TEST_SUITE_P(Ways, Products,
                         ::testing::Values(ProductWay::mkl, ProductWay::onednn, ProductWay::own),
                         [](const auto& way) { return std::string(to_string(way.param)); });

TEST(ProductNotes, NoteEachShapeOnce) {
  const c10::InferenceMode no_tape;
  const at::Tensor a = at::full({8, 4}, 1.0), b = at::full({4, 2}, 1.0);
  ProductNotes notes;
  product(a, b);
  product(a, b);
  product(b.t(), a.t());
  EXPECT_EQ(notes.shapes(),
            (std::set<ProductShape>{ProductShape::of_matrices(8, 4, 2),
                                    ProductShape::of_matrices(2, 4, 8, true, true)}));
}

TEST(OwnProduct, HasTheSameBitsOnAnyNumberOfThreads) {
  const c10::InferenceMode no_tape;
  const ProductChoices own(ProductWay::own);
  const ProductScope scope(&own);
  RandomStream random(11);
  for (const Extents& e : {Extents{700, 300, 90}, {40, 600, 500}, {5, 2000, 7}}) {
    const at::Tensor a = drawn(e.rows, e.inner, Layout::transposed, random);
    const at::Tensor b = drawn(e.inner, e.columns, Layout::plain, random);
    use_threads(1);
    const at::Tensor one = product(a, b);
    for (const int threads : {2, 3, 8}) {
      use_threads(threads);
      const at::Tensor many = product(a, b);
      EXPECT_EQ(std::memcmp(one.data_ptr(), many.data_ptr(), one.nbytes()), 0) << threads;
    }
  }
  use_threads(1);
}

/// Every instruction set that this processor has, not only the one that is chosen: tiles of every
/// height on rows in place and on packed ones, over two segments.
TEST(OwnProduct, IsRightForEveryInstructionSet) {
  std::vector<const ProductKernels*> all{&baseline_products()};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    all.push_back(&avx2_products());
  }
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) {
    all.push_back(&avx512_products());
  }
#endif
  constexpr std::int64_t inner = 20, first = 7, most_columns = 32;
  RandomStream random(3);
  for (const ProductKernels* kernels : all) {
    const std::int64_t width = kernels->tile_columns;
    for (std::int64_t rows = 1; rows <= kernels->tile_rows; ++rows) {
      const std::int64_t columns = 1 + random.below(static_cast<std::uint64_t>(width));
      const at::Tensor a = drawn(rows, inner, Layout::plain, random);
      const at::Tensor b = drawn(inner, columns, Layout::transposed, random);
      const at::Tensor packed_a = at::empty({inner, rows});
      const at::Tensor packed_b = at::empty({inner, most_columns});
      kernels->pack({a.data_ptr<float>(), a.stride(0), a.stride(1)}, rows, inner, rows,
                    packed_a.data_ptr<float>());
      kernels->pack({b.data_ptr<float>(), b.stride(1), b.stride(0)}, columns, inner, width,
                    packed_b.data_ptr<float>());
      for (const bool in_place : {true, false}) {
        const std::int64_t step = in_place ? 1 : rows;
        const ProductSegment segments[] = {{0, 0, first},
                                           {first * step, first * width, inner - first}};
        const at::Tensor out = at::full({rows, columns}, 1.0);
        const ProductTile tile{segments,
                               2,
                               (in_place ? a : packed_a).data_ptr<float>(),
                               in_place ? a.stride(0) : rows,
                               packed_b.data_ptr<float>(),
                               width,
                               out.data_ptr<float>(),
                               columns,
                               rows,
                               columns};
        (in_place ? kernels->multiply_rows : kernels->multiply_columns)(tile, Accumulation::add);
        for (std::int64_t r = 0; r < rows; ++r) {
          for (std::int64_t c = 0; c < columns; ++c) {
            double sum = 1;
            for (std::int64_t k = 0; k < inner; ++k) sum += at_place(a, r, k) * at_place(b, k, c);
            ASSERT_NEAR(at_place(out, r, c), sum, 1e-5) << rows << " rows of tiles " << width;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace heteroperf
