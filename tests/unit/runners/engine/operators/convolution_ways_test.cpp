#include "runners/engine/operators/convolution_ways.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "metrics/base/random.hpp"
#include "runners/engine/operators/kernel_launch.hpp"
#include "runners/engine/operators/product.hpp"
#include "runners/engine/probe/operation_observer.hpp"

namespace heteroperf {
namespace {

struct Geometry {
  std::int64_t batch, channels, height, width, out_channels;
  std::array<std::int64_t, 2> kernel, stride, padding;
};

Convolution convolution_of(const Geometry& g) {
  const std::array<std::int64_t, 2> extents{g.height, g.width};
  return {window_over(g, g.channels, extents)};
}

at::Tensor drawn_images(at::IntArrayRef sizes, RandomStream& random) {
  const at::Tensor tensor = canonical(at::empty(sizes, at::kFloat));
  float* const values = tensor.data_ptr<float>();
  for (std::int64_t i = 0; i < tensor.numel(); ++i) {
    values[i] = static_cast<float>(random.unit() - 0.5);
  }
  return tensor;
}

/// Images, weights and the gradient of the result.
struct Operands {
  Operands(const Geometry& g, RandomStream& random)
      : x(drawn_images({g.batch, g.channels, g.height, g.width}, random)),
        weight(drawn_images({g.out_channels, g.channels, g.kernel[0], g.kernel[1]}, random)),
        dy(drawn_images({g.batch, g.out_channels, convolution_of(g).window.out[0],
                         convolution_of(g).window.out[1]},
                        random)) {}
  at::Tensor x, weight, dy;
};

float& at_place(const at::Tensor& t, std::int64_t a, std::int64_t b, std::int64_t c,
                std::int64_t d) {
  return t.data_ptr<float>()[a * t.stride(0) + b * t.stride(1) + c * t.stride(2) + d * t.stride(3)];
}

/// Calls visit(sample, out channel, h, w, channel, image row, image column, kh, kw) for every
/// multiply-add of a convolution, from its definition.
template <class Visit>
void for_terms(const Geometry& g, const Visit& visit) {
  const Window w = convolution_of(g).window;
  for (std::int64_t b = 0; b < g.batch; ++b)
    for (std::int64_t o = 0; o < g.out_channels; ++o)
      for (std::int64_t h = 0; h < w.out[0]; ++h)
        for (std::int64_t v = 0; v < w.out[1]; ++v)
          for (std::int64_t kh = 0; kh < g.kernel[0]; ++kh)
            for (std::int64_t kw = 0; kw < g.kernel[1]; ++kw) {
              const std::int64_t row = h * g.stride[0] - g.padding[0] + kh;
              const std::int64_t column = v * g.stride[1] - g.padding[1] + kw;
              if (row < 0 || row >= g.height || column < 0 || column >= g.width) continue;
              for (std::int64_t c = 0; c < g.channels; ++c) {
                visit(b, o, h, v, c, row, column, kh, kw);
              }
            }
}

/// The definition's result, in double.
std::vector<double> defined(const Geometry& g, ProductKind pass, const Operands& t,
                            const at::Tensor& result) {
  std::vector<double> sums(static_cast<std::size_t>(result.numel()), 0.0);
  const auto add = [&](std::int64_t i, std::int64_t j, std::int64_t k, std::int64_t l,
                       double value) {
    sums[static_cast<std::size_t>(i * result.stride(0) + j * result.stride(1) +
                                  k * result.stride(2) + l * result.stride(3))] += value;
  };
  for_terms(g, [&](auto b, auto o, auto h, auto v, auto c, auto row, auto column, auto kh,
                   auto kw) {
    const double x = at_place(t.x, b, c, row, column), weight = at_place(t.weight, o, c, kh, kw);
    const double dy = at_place(t.dy, b, o, h, v);
    if (pass == ProductKind::conv) add(b, o, h, v, x * weight);
    if (pass == ProductKind::conv_input) add(b, c, row, column, dy * weight);
    if (pass == ProductKind::conv_weight) add(o, c, kh, kw, dy * x);
  });
  return sums;
}

at::Tensor made(const Convolution& c, ProductWay way, ProductKind pass, const Operands& t) {
  if (pass == ProductKind::conv) return c.forward(way, t.x, t.weight);
  if (pass == ProductKind::conv_input) return c.input_gradient(way, t.dy, t.weight, t.x);
  const at::Tensor gradient = uninitialised_like(t.weight);
  c.weight_gradient(way, t.dy, t.x, gradient, Accumulation::overwrite);
  return gradient;
}

constexpr std::array passes{ProductKind::conv, ProductKind::conv_input, ProductKind::conv_weight};

void expect_defined(const Geometry& g, ProductWay way, RandomStream& random) {
  const Operands t(g, random);
  for (const ProductKind pass : passes) {
    if (!offers({pass, {1, 1, 1, 1, 1, g.kernel[0], g.kernel[1]}}, way)) continue;
    const at::Tensor result = made(convolution_of(g), way, pass, t);
    const std::vector<double> sums = defined(g, pass, t, result);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      ASSERT_NEAR(result.data_ptr<float>()[i], sums[i], 2e-4)
          << to_string(pass) << " of " << g.batch << " images " << g.channels << "x" << g.height
          << "x" << g.width << " to " << g.out_channels << ", window " << g.kernel[0] << "x"
          << g.kernel[1] << ", stride " << g.stride[0] << ", " << g.stride[1] << ", padding "
          << g.padding[0] << ", " << g.padding[1] << " at " << i;
    }
  }
}

class ConvolutionWays : public ::testing::TestWithParam<ProductWay> {
 protected:
  void SetUp() override {
    if (!has_product_way(GetParam())) {
      GTEST_SKIP() << "this machine lacks " << to_string(GetParam());
    }
    use_threads(1);
  }
  void TearDown() override { use_threads(1); }

  c10::InferenceMode no_tape_;
};

/// Images smaller than their windows, windows that skip pixels, and channels around whole tiles.
TEST_P(ConvolutionWays, AreTheConvolutionThatIsDefined) {
  RandomStream random(5);
  for (int trial = 0; trial < 60; ++trial) {
    const auto from = [&](std::uint64_t least, std::uint64_t most) {
      return static_cast<std::int64_t>(least + random.below(most - least + 1));
    };
    Geometry g{from(1, 8), from(1, 20), from(1, 9), from(1, 9), from(1, 20), {}, {}, {}};
    for (std::size_t axis = 0; axis < 2; ++axis) {
      g.kernel[axis] = from(1, 4);
      g.stride[axis] = from(1, 3);
      g.padding[axis] = from(0, static_cast<std::uint64_t>(g.kernel[axis] - 1));
      const std::int64_t extent = axis == 0 ? g.height : g.width;
      if (extent + 2 * g.padding[axis] < g.kernel[axis]) g.kernel[axis] = 1;
      if (g.kernel[axis] == 1) g.padding[axis] = 0;
    }
    expect_defined(g, GetParam(), random);
  }
}

/// The forms of residual networks, at few channels.
TEST_P(ConvolutionWays, OfResidualNetworks) {
  RandomStream random(6);
  for (const Geometry& g : {Geometry{3, 3, 32, 32, 8, {7, 7}, {2, 2}, {3, 3}},
                            {2, 32, 16, 16, 33, {3, 3}, {1, 1}, {1, 1}},
                            {13, 32, 8, 8, 16, {3, 3}, {2, 2}, {1, 1}},
                            {15, 64, 1, 1, 64, {3, 3}, {1, 1}, {1, 1}},
                            {4, 32, 8, 8, 16, {1, 1}, {2, 2}, {0, 0}},
                            {4, 32, 8, 8, 16, {1, 1}, {1, 1}, {0, 0}},
                            {600, 32, 2, 2, 16, {3, 3}, {1, 1}, {1, 1}}}) {
    expect_defined(g, GetParam(), random);
  }
}

TEST_P(ConvolutionWays, AddToTheGradientOfWeights) {
  RandomStream random(8);
  const Geometry g{40, 32, 4, 4, 20, {3, 3}, {1, 1}, {1, 1}};
  const Operands t(g, random);
  const at::Tensor once = made(convolution_of(g), GetParam(), ProductKind::conv_weight, t);
  const at::Tensor twice = once.clone();
  convolution_of(g).weight_gradient(GetParam(), t.dy, t.x, twice, Accumulation::add);
  for (std::int64_t i = 0; i < once.numel(); ++i) {
    ASSERT_NEAR(twice.data_ptr<float>()[i], 2 * once.data_ptr<float>()[i], 1e-3);
  }
}

TEST_P(ConvolutionWays, AreCountedAlike) {
  RandomStream random(9);
  const Geometry g{2, 16, 6, 6, 8, {3, 3}, {1, 1}, {1, 1}};
  const Operands t(g, random);
  for (const ProductKind pass : passes) {
    OperationObserver observer;
    made(convolution_of(g), GetParam(), pass, t);
    EXPECT_EQ(observer.observed().executed, Ops(2 * 2 * 36 * 16 * 9 * 8)) << to_string(pass);
    EXPECT_TRUE(observer.observed().unknown.empty());
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, ConvolutionWays,
                         ::testing::Values(ProductWay::mkl, ProductWay::onednn, ProductWay::own,
                                           ProductWay::libtorch),
                         [](const auto& way) { return std::string(to_string(way.param)); });

TEST(OwnConvolution, HasTheSameBitsOnAnyNumberOfThreads) {
  const c10::InferenceMode no_tape;
  RandomStream random(12);
  for (const Geometry& g : {Geometry{32, 32, 8, 8, 64, {3, 3}, {1, 1}, {1, 1}},
                            {8, 3, 32, 32, 32, {7, 7}, {2, 2}, {3, 3}},
                            {32, 64, 2, 2, 64, {3, 3}, {2, 2}, {1, 1}}}) {
    const Operands t(g, random);
    for (const ProductKind pass : passes) {
      use_threads(1);
      const at::Tensor one = made(convolution_of(g), ProductWay::own, pass, t);
      for (const int threads : {2, 3, 8}) {
        use_threads(threads);
        const at::Tensor many = made(convolution_of(g), ProductWay::own, pass, t);
        EXPECT_EQ(std::memcmp(one.data_ptr(), many.data_ptr(), one.nbytes()), 0)
            << to_string(pass) << " by " << threads;
      }
    }
  }
  use_threads(1);
}

}  // namespace
}  // namespace heteroperf
