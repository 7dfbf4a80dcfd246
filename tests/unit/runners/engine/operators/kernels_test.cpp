#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "metrics/base/random.hpp"
#include "runners/engine/kernels/kernel_table.hpp"

namespace heteroperf {
namespace {

std::vector<float> grid(float low, float high, std::int64_t count) {
  std::vector<float> x(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    const double share = static_cast<double>(i) / static_cast<double>(count - 1);
    x[static_cast<std::size_t>(i)] = static_cast<float>(low + share * (high - low));
  }
  return x;
}

using Exact = double (*)(double);
double exact_gelu(double x) { return 0.5 * x * std::erfc(-x * M_SQRT1_2); }
double exact_gelu_tanh(double x) {
  const double u = std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x);
  return x / (1.0 + std::exp(-2.0 * u));
}
double exact_silu(double x) { return x / (1.0 + std::exp(-x)); }
double exact_tanh(double x) { return std::tanh(x); }

struct FunctionCase {
  const char* name;
  void (*run)(const KernelTable&, RowRange, void* x, void* y);
  Exact exact;
  float low, high;
  double relative;
};

const FunctionCase functions[] = {
    {"gelu",
     [](const KernelTable& k, RowRange r, void* x, void* y) {
       k.activation(r, ActivationKind::gelu_erf, x, nullptr, y);
     },
     exact_gelu, -5.0f, 8.0f, 2e-6},
    {"gelu_tanh",
     [](const KernelTable& k, RowRange r, void* x, void* y) {
       k.activation(r, ActivationKind::gelu_tanh, x, nullptr, y);
     },
     exact_gelu_tanh, -4.0f, 8.0f, 4e-6},
    {"silu",
     [](const KernelTable& k, RowRange r, void* x, void* y) {
       k.activation(r, ActivationKind::silu, x, nullptr, y);
     },
     exact_silu, -20.0f, 20.0f, 2e-6},
    {"tanh",
     [](const KernelTable& k, RowRange r, void* x, void* y) {
       k.activation(r, ActivationKind::tanh, x, nullptr, y);
     },
     exact_tanh, -12.0f, 12.0f, 5e-7},
};

TEST(FloatFunctions, AreAccurateInEveryInstructionSet) {
  for (const KernelVariant& variant : kernel_variants()) {
    for (const FunctionCase& f : functions) {
      std::vector<float> x = grid(f.low, f.high, 100003), y(x.size());
      f.run(variant.kernels(Element::float32), {0, static_cast<std::int64_t>(x.size()), 1},
            x.data(), y.data());
      double worst = 0.0;
      for (std::size_t i = 0; i < x.size(); ++i) {
        const double exact = f.exact(x[i]);
        worst = std::max(worst, std::abs(y[i] - exact) / std::max(std::abs(exact), 1e-30));
      }
      EXPECT_LE(worst, f.relative) << variant.name << " " << f.name;
    }
  }
}

TEST(FloatFunctions, KeepTheirLimitsAndNan) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const KernelVariant& variant : kernel_variants()) {
    for (const FunctionCase& f : functions) {
      // Seventeen values, so that both the vector body and the remainder see each.
      std::vector<float> x{-1e4f, 1e4f, 0.0f, nan, infinity, -90.0f, 90.0f, 1e-20f, nan,
                           -1e4f, 1e4f, 0.0f, nan, infinity, -90.0f, 90.0f, nan};
      std::vector<float> y(x.size());
      f.run(variant.kernels(Element::float32), {0, static_cast<std::int64_t>(x.size()), 1},
            x.data(), y.data());
      const double upper = f.exact == exact_tanh ? 1.0 : 1e4;
      EXPECT_NEAR(y[0], f.exact == exact_tanh ? -1.0 : 0.0, 1e-30) << f.name;
      EXPECT_EQ(y[1], upper) << f.name;
      EXPECT_EQ(y[2], 0.0f) << f.name;
      for (const std::size_t i : {3, 8, 12, 16}) EXPECT_TRUE(std::isnan(y[i])) << f.name << i;
      EXPECT_EQ(y[4], f.exact == exact_tanh ? 1.0f : infinity) << f.name;
    }
  }
}

TEST(Kernels, TellElementTypesApart) {
  const KernelVariant fastest = kernel_variants().front();
  EXPECT_NE(fastest.kernels(Element::float32).activation,
            fastest.kernels(Element::float64).activation);
  EXPECT_NE(fastest.kernels(Element::float32).activation,
            fastest.kernels(Element::bfloat16).activation);
}

TEST(Kernels, RoundBf16ToNearestEven) {
  // 1 + 2^-8 lies between 1 (even) and 1 + 2^-7; 1 + 3 · 2^-8 between 1 + 2^-7 and 1 + 2^-6 (even).
  std::vector<std::uint16_t> a{0x3f80, 0x3f81, 0x7f80}, b{0x3b80, 0x3b80, 0xff80}, y(3);
  for (const KernelVariant& variant : kernel_variants()) {
    variant.kernels(Element::bfloat16)
        .add({0, 3, 1}, a.data(), nullptr, 1, b.data(), false, y.data());
    EXPECT_EQ(y[0], 0x3f80) << variant.name;
    EXPECT_EQ(y[1], 0x3f82) << variant.name;
    EXPECT_GT(y[2] & 0x7fff, 0x7f80) << "inf − inf is a NaN";
  }
}

TEST(Kernels, VariantsAgreeOnALayerNorm) {
  constexpr std::int64_t rows = 5, columns = 77;
  std::vector<float> x(rows * columns), weight(columns, 1.5f), bias(columns, -0.25f);
  RandomStream stream(1);
  for (float& value : x) value = static_cast<float>(stream.unit());
  std::vector<float> first;
  for (const KernelVariant& variant : kernel_variants()) {
    std::vector<float> y(x.size()), mean(rows), rstd(rows);
    variant.kernels(Element::float32)
        .layer_norm({0, rows, columns}, 1e-5, x.data(), weight.data(), bias.data(), y.data(),
                    mean.data(), rstd.data());
    if (first.empty()) first = y;
    for (std::size_t i = 0; i < y.size(); ++i) EXPECT_NEAR(y[i], first[i], 1e-5) << variant.name;
  }
}

}  // namespace
}  // namespace heteroperf
