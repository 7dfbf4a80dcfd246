// The part of the GPU module that needs LibTorch's headers of CUDA: kernels are queued on
// LibTorch's stream, behind the operations that made their inputs.
//
// Work on one stream runs in the order in which it was queued, so our kernels and LibTorch's
// operations need no events between them. Waiting is for results that leave the device.
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include "metrics/base/error.hpp"
#include "runners/engine/kernels/cuda/device_kernels.hpp"

namespace heteroperf {

cudaStream_t kernel_stream() { return c10::cuda::getCurrentCUDAStream(); }

// A device that fails or disappears ends the run that is under way.
void expect_launched(cudaError_t code) {
  if (code == cudaSuccess) return;
  const bool is_foreign = code == cudaErrorNoKernelImageForDevice;
  throw SystemError("work on a GPU failed", cudaGetErrorString(code),
                    is_foreign ? "The program is built for those of CMAKE_CUDA_ARCHITECTURES"
                               : "nvidia-smi tells whether it is there and what holds it",
                    is_foreign ? ErrorKind::environment : ErrorKind::run_failed);
}

void wait_for_stream(int index) {
  const auto device = static_cast<c10::DeviceIndex>(index);
  expect_launched(cudaStreamSynchronize(c10::cuda::getCurrentCUDAStream(device)));
}

}  // namespace heteroperf

/// The module's door to the kernels.
extern "C" __attribute__((visibility("default"))) const heteroperf::DeviceKernels*
heteroperf_device_kernels() {
  return &heteroperf::cuda_kernels();
}
