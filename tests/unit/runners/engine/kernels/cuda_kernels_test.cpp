#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

// The order counts.
// clang-format off
#include "tests/unit/runners/engine/kernels/device_on_host.hpp"
// The device's source itself, as plain C++.
#include "runners/engine/kernels/cuda/table.cu"
#include "runners/engine/kernels/kernel_table.hpp"
#include "tests/unit/runners/engine/kernels/kernel_cases.hpp"
// clang-format on

namespace heteroperf {
namespace {

/// The device's kernels against the host's.
void compare(const KernelCase& kernel, Element element, std::int64_t rows, std::int64_t columns,
             std::uint64_t seed) {
  expect_alike(kernel, Tables{table_of, true}, Tables{baseline_kernels, false}, element, rows,
               columns, seed);
}

TEST(CudaKernels, GiveWhatTheCpusGive) { for_drawn_shapes(compare); }

TEST(CudaKernels, SumManyRowsOfFewColumns) {
  for (const RunKernel run : {RunKernel(run_column_sum<Accumulation::add>), RunKernel(run_moments),
                              RunKernel(run_batch_norm_backward<MaskFrom::scale>)}) {
    compare({"many rows", run}, Element::float64, 5000, 3, 9);
  }
}

TEST(CudaKernels, LeaveAnEmptyRangeAlone) {
  Values x(Element::float32, 4), y(Element::float32, 4);
  y.set(0, 3);
  const KernelTable& k = table_of(Element::float32);
  k.activation({0, 0, 4}, ActivationKind::relu, x.data(), nullptr, y.data());
  k.layer_norm({0, 0, 4}, 1e-5, x.data(), x.data(), nullptr, y.data(), y.data(), y.data());
  k.column_sum({0, 0, 4}, x.data(), y.data());
  EXPECT_EQ(y.at(0), 3);
}

TEST(CudaKernels, TakeWhatIsNotAligned) {
  Values x(Element::float32, 9), y(Element::float32, 9);
  for (int i = 0; i < 9; ++i) x.set(i, i - 4);
  table_of(Element::float32)
      .activation({0, 8, 1}, ActivationKind::relu, static_cast<float*>(x.data()) + 1, nullptr,
                  static_cast<float*>(y.data()) + 1);
  for (int i = 1; i < 9; ++i) EXPECT_EQ(y.at(i), std::max(0, i - 4));
}

TEST(CudaKernels, SumMoreColumnsThanOneTile) {
  compare({"wide", run_column_sum<Accumulation::overwrite>}, Element::float32, 40, 3000, 4);
}

}  // namespace
}  // namespace heteroperf
