#include "runners/engine/peak_rate.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <array>
#include <chrono>

#include "runners/engine/load_cuda.hpp"
#include "runners/engine/scoped_seconds.hpp"

namespace heteroperf {
namespace {

using Clock = std::chrono::steady_clock;

double best_rate(std::int64_t n, at::ScalarType type, double seconds) {
  const at::Tensor a = at::full({n, n}, 0.5, at::TensorOptions().dtype(type));
  const at::Tensor b = at::full({n, n}, 0.25, at::TensorOptions().dtype(type));
  at::Tensor product = at::mm(a, b);
  double shortest_s = 1e30;
  const Clock::time_point start = Clock::now();
  do {
    const Clock::time_point begin = Clock::now();
    at::mm_out(product, a, b);
    shortest_s = std::min(shortest_s, seconds_since(begin));
  } while (seconds_since(start) < seconds);
  const auto size = static_cast<double>(n);
  return 2.0 * size * size * size / shortest_s;
}

}  // namespace

at::ScalarType scalar_type(Precision precision) {
  switch (precision) {
    case Precision::fp32:
      return at::kFloat;
    case Precision::bf16:
      return at::kBFloat16;
    case Precision::fp64:
      return at::kDouble;
  }
  return at::kFloat;
}

void use_threads(int threads) {
  at::internal::lazy_init_num_threads();
  if (at::get_num_threads() != threads) at::set_num_threads(threads);
}

namespace {

double best_device_rate(Accelerator& device, std::int64_t n, const at::TensorOptions& options,
                        double seconds) {
  const at::Tensor a = at::full({n, n}, 0.5, options), b = at::full({n, n}, 0.25, options);
  at::Tensor product = at::mm(a, b);
  double shortest_s = 1e30;
  const Clock::time_point start = Clock::now();
  do {
    const auto begin = device.mark();
    at::mm_out(product, a, b);
    shortest_s = std::min(shortest_s, device.mark()->seconds_since(*begin));
  } while (seconds_since(start) < seconds);
  const auto size = static_cast<double>(n);
  return 2.0 * size * size * size / shortest_s;
}

}  // namespace

double measure_cuda_matrix_rate(Precision precision, int gpu, double seconds) {
  const c10::InferenceMode no_tape;
  Accelerator& device = use_cuda(gpu);
  const auto options = at::TensorOptions().dtype(scalar_type(precision)).device(cuda_device(gpu));
  constexpr std::array<std::int64_t, 2> sizes{4096, 8192};
  double best = 0;
  for (const std::int64_t n : sizes) {
    best = std::max(best, best_device_rate(device, n, options, seconds / sizes.size()));
  }
  return best;
}

double measure_matrix_rate(Precision precision, int threads, double seconds) {
  const c10::InferenceMode no_tape;
  use_threads(threads);
  constexpr std::array<std::int64_t, 2> sizes{1024, 2048};
  double best = 0;
  for (const std::int64_t n : sizes) {
    best = std::max(best, best_rate(n, scalar_type(precision), seconds / sizes.size()));
  }
  return best;
}

}  // namespace heteroperf
