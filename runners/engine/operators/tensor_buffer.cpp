// Tensors as the plain memory that communicators take, and copies on the host where they need one.
//
// A group's transport either takes device memory or works on the host's. In the first case a call
// only has to wait for the work that makes the tensor; in the second the tensor is copied to
// page-locked memory, the call works there, and put_back() copies the results to the device.
// HostCopies hides the difference from collectives.
#include "runners/engine/operators/tensor_buffer.hpp"

#include <ATen/ops/empty_like.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>

#include "metrics/base/error.hpp"
#include "runners/engine/operators/kernel_launch.hpp"

namespace heteroperf {

DataType data_type(at::ScalarType type) {
  constexpr std::pair<at::ScalarType, DataType> types[] = {
      {at::kFloat, DataType::f32}, {at::kDouble, DataType::f64}, {at::kBFloat16, DataType::bf16},
      {at::kHalf, DataType::f16},  {at::kInt, DataType::i32},    {at::kLong, DataType::i64},
      {at::kByte, DataType::u8}};
  for (const auto& [scalar, carried] : types) {
    if (scalar == type) return carried;
  }
  throw UserError(fmt::format("no communicator carries tensors of {}", c10::toString(type)));
}

// Communicators see memory, not shapes: any dense order of elements will do, as long as all ranks
// have it.
MutableBuffer buffer_of(const at::Tensor& tensor) {
  HETEROPERF_EXPECT(tensor.is_non_overlapping_and_dense());
  return {tensor.data_ptr(), static_cast<std::size_t>(tensor.numel()),
          data_type(tensor.scalar_type())};
}

at::Tensor on_host(const at::Tensor& tensor) {
  if (!tensor.is_cuda()) return tensor;
  const at::TensorOptions options = tensor.options().device(at::kCPU).pinned_memory(true);
  return at::empty_like(tensor, options).copy_(tensor);
}

// The work that made the tensor may still be under way on the device.
at::Tensor HostCopies::of(const at::Tensor& tensor) {
  if (!tensor.is_cuda()) return tensor;
  if (on_device_) {
    device_kernels().wait(tensor.device().index());
    return tensor;
  }
  const c10::InferenceMode no_tape;
  copies_.emplace_back(tensor, on_host(tensor));
  return copies_.back().second;
}

void HostCopies::put_back() {
  const c10::InferenceMode no_tape;
  for (const auto& [original, copy] : copies_) original.copy_(copy);
  copies_.clear();
}

void all_reduce(Communicator& group, const at::Tensor& tensor, Reduction reduction) {
  HostCopies copies(group);
  group.all_reduce(buffer_of(copies.of(tensor)), reduction);
  copies.put_back();
}

}  // namespace heteroperf
