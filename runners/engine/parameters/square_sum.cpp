#include "runners/engine/parameters/square_sum.hpp"

#include <ATen/Dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "runners/engine/kernels/optimizer_kernels.hpp"
#include "runners/engine/operators/kernel_launch.hpp"

namespace heteroperf {
namespace {

double device_square_sum(const at::Tensor& flat, std::span<const ArenaRange> ranges) {
  const at::TensorOptions wide = flat.options().dtype(at::kDouble);
  const at::Tensor partials = at::empty({square_sum_blocks}, wide), sum = at::zeros({1}, wide);
  for (const ArenaRange& range : ranges) {
    const at::Tensor part = flat.narrow(0, range.begin, range.count());
    device_kernels().add_square_sum(element_of(flat.scalar_type()), part.const_data_ptr(),
                                    part.numel(), partials.data_ptr<double>(),
                                    sum.data_ptr<double>());
  }
  return sum.item().toDouble();
}

}  // namespace

double square_sum(const at::Tensor& flat, std::span<const ArenaRange> ranges) {
  if (flat.is_cuda()) return device_square_sum(flat, ranges);
  double sum = 0;
  AT_DISPATCH_FLOATING_TYPES(flat.scalar_type(), "square_sum", [&] {
    const auto* data = flat.const_data_ptr<scalar_t>();
    for (const ArenaRange& range : ranges) {
      sum += sum_of_squares(data + range.begin, range.count());
    }
  });
  return sum;
}

}  // namespace heteroperf
