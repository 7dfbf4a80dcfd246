#include "runners/engine/operators/host_copies.hpp"

#include <ATen/ops/empty_like.h>
#include <c10/core/InferenceMode.h>

#include "runners/engine/operators/kernel_launch.hpp"

namespace heteroperf {

at::Tensor on_host(const at::Tensor& tensor) {
  if (!tensor.is_cuda()) return tensor;
  const at::TensorOptions options = tensor.options().device(at::kCPU).pinned_memory(true);
  return at::empty_like(tensor, options).copy_(tensor);
}

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

}  // namespace heteroperf
