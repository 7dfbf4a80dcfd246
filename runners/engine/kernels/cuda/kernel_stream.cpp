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
namespace {

/// A device that fails or disappears ends the run that is under way.
[[noreturn]] void throw_failed(cudaError_t code) {
  throw SystemError("work on a GPU failed", cudaGetErrorString(code),
                    "nvidia-smi tells whether the device is still there and what holds it",
                    ErrorKind::run_failed);
}

}  // namespace

cudaStream_t kernel_stream() { return c10::cuda::getCurrentCUDAStream(); }

void expect_launched(cudaError_t code) {
  if (code == cudaSuccess) return;
  if (code == cudaErrorNoKernelImageForDevice) {
    throw SystemError("a kernel could not be started", cudaGetErrorString(code),
                      "The program is built for the devices named in CMAKE_CUDA_ARCHITECTURES",
                      ErrorKind::environment);
  }
  throw_failed(code);
}

void wait_for_stream(int index) {
  const auto device = static_cast<c10::DeviceIndex>(index);
  const cudaError_t code = cudaStreamSynchronize(c10::cuda::getCurrentCUDAStream(device));
  if (code != cudaSuccess) throw_failed(code);
}

}  // namespace heteroperf

/// The module's door to the kernels.
extern "C" __attribute__((visibility("default"))) const heteroperf::DeviceKernels*
heteroperf_device_kernels() {
  return &heteroperf::cuda_kernels();
}
