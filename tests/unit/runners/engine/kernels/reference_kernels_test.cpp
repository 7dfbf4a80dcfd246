#include <gtest/gtest.h>

#include <cmath>

#include "runners/engine/kernels/kernel_table.hpp"
#include "tests/unit/runners/engine/kernels/kernel_cases.hpp"

namespace heteroperf {
namespace {

TEST(ReferenceKernels, GiveWhatEveryVariantGives) {
  for (const KernelVariant& variant : kernel_variants()) {
    SCOPED_TRACE(variant.name);
    for_drawn_shapes([&](const KernelCase& kernel, Element element, std::int64_t rows,
                         std::int64_t columns, std::uint64_t seed) {
      expect_alike(kernel, {variant.kernels, false}, {reference_kernels, false}, element, rows,
                   columns, seed);
    });
  }
}

// A sum whose terms cancel in float32 shows in which type it was made.
TEST(ReferenceKernels, ComputeFloat32InFloat64) {
  Values x(Element::float32, 3), sum(Element::float32, 1);
  x.set(0, 1e8), x.set(1, 1), x.set(2, -1e8);
  reference_kernels(Element::float32).column_sum({0, 3, 1}, x.data(), sum.data());
  EXPECT_EQ(sum.at(0), 1);
}

}  // namespace
}  // namespace heteroperf
