#pragma once

// Launching of kernels, and the loops by which threads share the elements.
//
// Kernels over elements walk them in strides of the whole grid, so any number of blocks is right for
// any size, and grids stay small enough to be cheap to start. The macro writes such a loop over rows
// and columns of a matrix.
//
// This file is compiled by nvcc, and by tests as plain C++ behind a header that plays the part of a
// device (it defines HETEROPERF_CUDA_ON_HOST, the built-in variables and launch()).
#include <algorithm>
#include <bit>
#include <cstdint>

#include "runners/engine/kernels/scalar_types.hpp"

#if defined(__CUDACC__)
#include <cuda_runtime.h>
#define HETEROPERF_SHARED __shared__
#elif !defined(HETEROPERF_CUDA_ON_HOST)
#error "CUDA kernels are compiled by nvcc"
#endif

namespace heteroperf {

/// Blocks in the grid and threads in a block, each in two dimensions.
struct LaunchShape {
  unsigned grid_x = 1, grid_y = 1, threads_x = 1, threads_y = 1;
};

/// Until the current stream of device `index` has done all that it was given. Throws SystemError.
void wait_for_stream(int index);

#if defined(__CUDACC__)
/// LibTorch's current stream of the current device.
cudaStream_t kernel_stream();
/// Throws SystemError for anything but success.
void expect_launched(cudaError_t code);

/// Queues the kernel on LibTorch's current stream and returns at once. Errors of the launch are
/// thrown; those of the kernel show at the next wait.
template <class... P>
void launch(void (*kernel)(P...), LaunchShape shape, P... arguments) {
  kernel<<<dim3(shape.grid_x, shape.grid_y), dim3(shape.threads_x, shape.threads_y), 0,
           kernel_stream()>>>(arguments...);
  expect_launched(cudaGetLastError());
}
#endif

namespace {

constexpr unsigned most_threads = 256, most_grid_blocks = 4096, warp_width = 32;

/// a / b, rounded up.
inline std::int64_t divided_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
/// `wanted`, held between two bounds.
inline unsigned within(std::int64_t least, std::int64_t wanted, std::int64_t most) {
  return static_cast<unsigned>(std::clamp(wanted, least, most));
}

/// x along the columns, y along the rows.
inline LaunchShape over_matrix(std::int64_t rows, std::int64_t columns) {
  // Narrow matrices get blocks of more rows, so that few threads are idle.
  const unsigned x = std::bit_ceil(within(8, columns, most_threads)), y = most_threads / x;
  const unsigned grid_x = within(1, divided_up(columns, x), most_grid_blocks);
  return {grid_x, within(1, divided_up(rows, y), most_grid_blocks / grid_x), x, y};
}
/// A block per row.
inline LaunchShape over_rows(std::int64_t rows, std::int64_t columns) {
  // About four columns to a thread, at least a warp.
  const unsigned threads = std::bit_ceil(within(warp_width, columns / 4, 2 * most_threads));
  return {within(1, rows, 1 << 20), 1, threads, 1};
}

/// The kernel takes the extents that it is launched over first. Nothing is started over none.
template <class Kernel, class... A>
void launch_matrix(Kernel* kernel, std::int64_t rows, std::int64_t columns, A... arguments) {
  if (rows * columns == 0) return;
  launch(kernel, over_matrix(rows, columns), rows, columns, arguments...);
}
/// Elements in 16 bytes, the widest load of a thread.
template <class T>
constexpr int pack_width = 16 / static_cast<int>(sizeof(T));

#define HETEROPERF_FOR_MATRIX(row, rows, column, columns)                                    \
  for (std::int64_t row = std::int64_t{blockIdx.y} * blockDim.y + threadIdx.y; row < (rows); \
       row += std::int64_t{gridDim.y} * blockDim.y)                                          \
    for (std::int64_t column = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;          \
         column < (columns); column += std::int64_t{gridDim.x} * blockDim.x)

}  // namespace
}  // namespace heteroperf
