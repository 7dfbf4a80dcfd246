// The table of kernels of a CUDA device, made of the same descriptions as the host's. This is the
// only file with code of the device, which is compiled as one.
// Skeletons stand before what they make kernels of.
// clang-format off
#include "runners/engine/kernels/cuda/skeletons.cuh"
#include "runners/engine/kernels/cuda/device_forms.cuh"
#include "runners/engine/kernels/kernel_entries.hpp"
// clang-format on

namespace heteroperf {
namespace {

constexpr DeviceKernels kernels{table_of, wait_for_stream};

}  // namespace

const DeviceKernels& cuda_kernels() { return kernels; }

}  // namespace heteroperf
