// The table of kernels of a CUDA device. All kernels are headers, and this is the only file that
// includes them, so the device's code is compiled once and as one. The names are those of the
// host's kernels, and the same list of entries makes both tables.
#include "runners/engine/kernels/cuda/activations.cuh"
#include "runners/engine/kernels/cuda/batch_norm.cuh"
#include "runners/engine/kernels/cuda/device_kernels.hpp"
#include "runners/engine/kernels/cuda/images.cuh"
#include "runners/engine/kernels/cuda/losses.cuh"
#include "runners/engine/kernels/cuda/norms.cuh"
#include "runners/engine/kernels/cuda/sequences.cuh"
#include "runners/engine/kernels/cuda/updates.cuh"

// Behind the kernels that it lists.
#include "runners/engine/kernels/table_entries.hpp"

namespace heteroperf {
namespace {

constexpr DeviceKernels kernels{table_of, adamw, sgd, add_square_sum, wait_for_stream};

}  // namespace

const DeviceKernels& cuda_kernels() { return kernels; }

}  // namespace heteroperf
