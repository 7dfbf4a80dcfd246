// The table of kernels of a CUDA device, made of the same descriptions as the host's. This is the
// only file with code of the device, which is compiled as one. The device's one exception is the
// gradient of a table: rows that name the same token must not be added by two threads.
#define HETEROPERF_OWN_EMBEDDING_BACKWARD
#include "runners/engine/kernels/cuda/skeletons.cuh"

namespace heteroperf {
namespace {

// A block per row: the first row of a token adds up all rows of it, in their order, the others do
// nothing. No two blocks write to one row of the gradient, so no order is left to chance.
template <class T>
__global__ void embedding_gradient_rows(std::int64_t rows, std::int64_t width,
                                        const std::int64_t* indices, const void* dy,
                                        void* gradient) {
  HETEROPERF_SHARED unsigned char same[most_threads];
  const std::int64_t place = blockIdx.x, index = indices[place];
  if (index < 0) return;
  // From the nearest row back: a frequent token is found soon.
  for (std::int64_t last = place; last > 0; last -= blockDim.x) {
    const std::int64_t row = last - 1 - static_cast<std::int64_t>(threadIdx.x);
    if (__syncthreads_or(row >= 0 && indices[row] == index)) return;
  }
  for (std::int64_t first = place; first < rows; first += blockDim.x) {
    const std::int64_t row = first + threadIdx.x;
    __syncthreads();  // all are done with the flags before
    same[threadIdx.x] = row < rows && indices[row] == index ? 1 : 0;
    __syncthreads();
    for (unsigned k = 0; k < blockDim.x; ++k) {
      if (same[k] == 0) continue;
      for (std::int64_t c = threadIdx.x; c < width; c += blockDim.x) {
        as<Acc<T>>(gradient)[index * width + c] += widen(as<T>(dy)[(first + k) * width + c]);
      }
    }
  }
}
/// Requires a gradient that is already set: rows are added to what is there.
template <class T>
void embedding_backward(RowRange r, std::int64_t rows, std::int64_t width,
                        const std::int64_t* indices, const void* dy, void* gradient) {
  if (rows * r.columns == 0) return;
  launch(embedding_gradient_rows<T>, {static_cast<unsigned>(rows), 1, most_threads, 1}, rows, width,
         indices, dy, gradient);
}

}  // namespace
}  // namespace heteroperf

// Skeletons and exceptions stand before the table that is made of them.
#include "runners/engine/kernels/kernel_entries.hpp"

namespace heteroperf {
namespace {

constexpr DeviceKernels kernels{table_of, wait_for_stream};

}  // namespace

const DeviceKernels& cuda_kernels() { return kernels; }

}  // namespace heteroperf
