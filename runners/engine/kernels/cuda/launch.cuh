#pragma once

// Launching of kernels, and the loops by which threads share the elements.
//
// Kernels over elements walk them in strides of the whole grid, so any number of blocks is right for
// any size, and grids stay small enough to be cheap to start. The macros write these loops:
// over rows and columns of a matrix, and over the columns of a row by the threads of a block.
//
// This file is compiled by nvcc, and by tests as plain C++ behind a header that plays the part of a
// device (it defines HETEROPERF_CUDA_ON_HOST, the built-in variables and launch()).
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
void start_kernel(void (*kernel)(P...), LaunchShape shape, P... arguments) {
  kernel<<<dim3(shape.grid_x, shape.grid_y), dim3(shape.threads_x, shape.threads_y), 0,
           kernel_stream()>>>(arguments...);
  expect_launched(cudaGetLastError());
}
#endif

namespace {

constexpr unsigned most_threads = 256, most_grid_blocks = 4096, warp_width = 32;

/// a / b, rounded up.
inline std::int64_t divided_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
/// `wanted` held between 1 and `most`.
inline unsigned at_most(std::int64_t wanted, unsigned most) {
  return wanted < static_cast<std::int64_t>(most) ? static_cast<unsigned>(wanted < 1 ? 1 : wanted)
                                                  : most;
}
/// The smallest power of two that is not below `wanted`, between `least` and `most`.
inline unsigned power_of_two(std::int64_t wanted, unsigned least, unsigned most) {
  unsigned result = least;
  while (result < most && static_cast<std::int64_t>(result) < wanted) result *= 2;
  return result;
}

/// x along the columns, y along the rows.
inline LaunchShape over_matrix(std::int64_t rows, std::int64_t columns) {
  // Narrow matrices get blocks of more rows, so that few threads are idle.
  const unsigned x = power_of_two(columns, 8, most_threads), y = most_threads / x;
  const unsigned grid_x = at_most(divided_up(columns, x), most_grid_blocks);
  return {grid_x, at_most(divided_up(rows, y), most_grid_blocks / grid_x), x, y};
}
/// A block per row.
inline LaunchShape over_rows(std::int64_t rows, std::int64_t columns) {
  // About four columns to a thread, at least a warp.
  return {at_most(rows, 1U << 20), 1, power_of_two(columns / 4, warp_width, 2 * most_threads), 1};
}

/// Starts a kernel with a table's arguments, which become what the kernel takes: pointers to
/// elements and numbers of the accumulation type.
template <class... P, class... A>
void launch(void (*kernel)(P...), LaunchShape shape, A... arguments) {
  start_kernel(kernel, shape, static_cast<P>(arguments)...);
}

/// The kernel takes the extents that it is launched over first. Nothing is started over none.
template <class Kernel, class... A>
void launch_matrix(Kernel* kernel, std::int64_t rows, std::int64_t columns, A... arguments) {
  if (rows * columns == 0) return;
  launch(kernel, over_matrix(rows, columns), rows, columns, arguments...);
}
/// Neighbouring elements that one instruction loads, or two where they have more than 16 bytes.
template <class T, int n>
struct alignas(n * sizeof(T) < 16 ? n * sizeof(T) : 16) Pack {
  T at[n];
};
/// Elements in 16 bytes, the widest load of a thread.
template <class T>
constexpr int pack_width = 16 / static_cast<int>(sizeof(T));

/// Pack number `pack` of an array that lies on 16 bytes, where n is not 1.
template <int n, class T>
HETEROPERF_KERNEL Pack<T, n> load(const T* from, std::int64_t pack) {
  return reinterpret_cast<const Pack<T, n>*>(from)[pack];
}
/// Stores pack number `pack`.
template <int n, class T>
HETEROPERF_KERNEL void keep(T* to, std::int64_t pack, const Pack<T, n>& values) {
  reinterpret_cast<Pack<T, n>*>(to)[pack] = values;
}

#define HETEROPERF_FOR_MATRIX(row, rows, column, columns)                                    \
  for (std::int64_t row = std::int64_t{blockIdx.y} * blockDim.y + threadIdx.y; row < (rows); \
       row += std::int64_t{gridDim.y} * blockDim.y)                                          \
    for (std::int64_t column = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;          \
         column < (columns); column += std::int64_t{gridDim.x} * blockDim.x)
#define HETEROPERF_FOR_COLUMNS(column, columns) \
  for (std::int64_t column = threadIdx.x; column < (columns); column += blockDim.x)

}  // namespace
}  // namespace heteroperf
