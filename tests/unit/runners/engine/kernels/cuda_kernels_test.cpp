#include <gtest/gtest.h>

#include <algorithm>
#include <array>
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

double tolerance(Element element) {
  switch (element) {
    case Element::float64:
      return 1e-13;
    case Element::bfloat16:
      return 1.6e-2;  // two steps of the type
    default:
      return 2e-6;
  }
}

/// max |a − b| / max |b|
double distance(const Values& a, const Values& b) {
  double difference = 0, largest = 0;
  EXPECT_EQ(a.count(), b.count());
  for (std::int64_t i = 0; i < b.count(); ++i) {
    const double gap = std::abs(a.at(i) - b.at(i));
    difference = std::isnan(gap) ? INFINITY : std::max(difference, gap);
    largest = std::max(largest, std::abs(b.at(i)));
  }
  return difference == 0 ? 0 : difference / largest;
}

void compare(const KernelCase& kernel, Element element, std::int64_t rows, std::int64_t columns,
             std::uint64_t seed) {
  Bench host(baseline_kernels, element, false, seed);
  Bench device(table_of, element, true, seed);
  kernel.run(host, rows, columns);
  kernel.run(device, rows, columns);
  ASSERT_EQ(host.outputs.size(), device.outputs.size());
  for (std::size_t i = 0; i < host.outputs.size(); ++i) {
    // Sums over many rows of bfloat16 data are made in float32.
    EXPECT_LE(distance(device.outputs[i], host.outputs[i]),
              tolerance(host.outputs[i].element) * (host.outputs[i].element == element ? 1 : 4))
        << kernel.name << ", output " << i << ", element type " << static_cast<int>(element) << ", "
        << rows << " x " << columns;
  }
}

TEST(CudaKernels, GiveWhatTheCpusGive) {
  constexpr std::array<std::int64_t, 9> widths{1, 3, 8, 16, 33, 64, 100, 257, 520};
  RandomStream random(20);
  for (const KernelCase& kernel : cases) {
    for (const Element element : {Element::float32, Element::float64, Element::bfloat16}) {
      for (int trial = 0; trial < 3; ++trial) {
        const auto rows = static_cast<std::int64_t>(1 + random.below(trial == 0 ? 3 : 70));
        compare(kernel, element, rows, widths[random.below(widths.size())], random.bits());
      }
    }
  }
}

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

template <class T>
void compare_updates(Element element, double limit) {
  constexpr std::int64_t n = 1000;
  RandomStream random(7);
  std::vector<T> weight(n), gradient(n), first(n), second(n);
  for (std::vector<T>* v : {&weight, &gradient, &first, &second}) {
    for (T& value : *v) value = static_cast<T>(random.unit());
  }
  std::vector<T> on_device = weight, device_first = first, device_second = second;
  const AdamwScalars adam{0.5, 0.99, 0.9, 0.95, 1e-8, 1e-2, 1.5};
  const SgdScalars plain{0.5, 1e-2, 0.9, 0.1};
  adamw_update(weight.data(), gradient.data(), first.data(), second.data(), 0, n, adam);
  sgd_update(weight.data(), gradient.data(), first.data(), 0, n, plain);
  const DeviceKernels& k = cuda_kernels();
  k.adamw_update(element, on_device.data(), gradient.data(), device_first.data(),
                 device_second.data(), n, adam);
  k.sgd_update(element, on_device.data(), gradient.data(), device_first.data(), n, plain);
  for (std::size_t i = 0; i < n; ++i) {
    EXPECT_NEAR(static_cast<double>(on_device[i]), static_cast<double>(weight[i]), limit);
    EXPECT_NEAR(static_cast<double>(device_first[i]), static_cast<double>(first[i]), limit);
    EXPECT_NEAR(static_cast<double>(device_second[i]), static_cast<double>(second[i]), limit);
  }
  std::vector<double> partials(square_sum_blocks);
  double sum = 1;
  k.add_square_sum(element, gradient.data(), n, partials.data(), &sum);
  EXPECT_NEAR(sum, 1 + sum_of_squares(gradient.data(), n), 1e-10);
}

TEST(CudaUpdates, GiveWhatTheCpusGive) {
  compare_updates<float>(Element::float32, 2e-6);
  compare_updates<double>(Element::float64, 1e-14);
}

}  // namespace
}  // namespace heteroperf
