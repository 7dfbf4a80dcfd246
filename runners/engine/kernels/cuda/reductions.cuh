#pragma once

// Sums of many threads in a fixed order.
//
// Floating-point sums depend on their order, and atomic additions have none. So every sum here is a
// tree or a list whose shape follows from the launch alone: within a warp by exchanging registers,
// between warps and between the rows of a tile through shared memory, and between blocks of threads
// by a second kernel. A *tile* is 32 neighbouring columns by a block of rows; its 8 rows of threads
// go down the rows, and neighbouring threads read neighbouring columns.
#include "runners/engine/kernels/cuda/device_kernels.hpp"
#include "runners/engine/kernels/cuda/launch.cuh"
#include "runners/engine/kernels/vector_math.hpp"

namespace heteroperf {
namespace {

/// The larger of two; a NaN on the left stays.
struct LargerOf {
  template <class A>
  HETEROPERF_KERNEL A operator()(A a, A b) const {
    return b > a ? b : a;
  }
};

/// One value of every thread of a one-dimensional block, joined; the result on all of them. All
/// threads call it. The order of the sums depends on the block's size alone.
template <class A, class Join>
__device__ A join_block(A value, Join join) {
  HETEROPERF_SHARED A of_warp[2 * most_threads / warp_width];
  // After five exchanges every thread of the warp has the sum of all of them.
  for (unsigned step = warp_width / 2; step > 0; step /= 2) {
    value = join(value, __shfl_xor_sync(0xffffffffU, value, static_cast<int>(step)));
  }
  const unsigned warps = blockDim.x / warp_width;
  if (warps == 1) return value;
  __syncthreads();  // the result of the call before has been read
  if (threadIdx.x % warp_width == 0) of_warp[threadIdx.x / warp_width] = value;
  __syncthreads();
  A result = of_warp[0];
  for (unsigned warp = 1; warp < warps; ++warp) result = join(result, of_warp[warp]);
  return result;
}
/// join_block() for sums.
template <class A>
__device__ A sum_block(A value) {
  return join_block(value, PlusOf());
}

/// Tiles of columns × blocks of rows.
constexpr unsigned tile_columns = 32, tile_rows = 8;

inline LaunchShape over_tiles(std::int64_t columns, std::int64_t blocks) {
  return {static_cast<unsigned>(divided_up(columns, tile_columns)), static_cast<unsigned>(blocks),
          tile_columns, tile_rows};
}

/// A tile of threads per 32 columns and block of device_rows_per_block() rows.
template <class Kernel, class... A>
void launch_tiles(Kernel* kernel, std::int64_t rows, std::int64_t columns, A... arguments) {
  if (rows * columns == 0) return;
  const std::int64_t per_block = device_rows_per_block(rows, columns);
  launch(kernel, over_tiles(columns, divided_up(rows, per_block)), rows, columns, per_block,
         arguments...);
}

/// Adds up, on the first row of threads of a tile, the values that each row has for a column, in
/// the order of the rows.
template <class A>
__device__ A sum_tile(A value) {
  HETEROPERF_SHARED A of_row[tile_rows][tile_columns];
  __syncthreads();  // the result of the call before has been read
  of_row[threadIdx.y][threadIdx.x] = value;
  __syncthreads();
  A sum = of_row[0][threadIdx.x];
  if (threadIdx.y != 0) return sum;
  for (unsigned y = 1; y < tile_rows; ++y) sum += of_row[y][threadIdx.x];
  return sum;
}

/// A tile's rows [first, last) and the column of this thread.
struct TilePlace {
  std::int64_t first, last, column;
  bool inside;
};
__device__ inline TilePlace tile_place(std::int64_t rows, std::int64_t columns,
                                       std::int64_t rows_per_block) {
  TilePlace place;
  // The y of the grid counts blocks of rows, the x tiles of columns.
  place.first = std::int64_t{blockIdx.y} * rows_per_block;
  place.last = place.first + rows_per_block < rows ? place.first + rows_per_block : rows;
  place.column = std::int64_t{blockIdx.x} * tile_columns + threadIdx.x;
  // Threads beyond the last column take part in the sums of the tile with zeros.
  place.inside = place.column < columns;
  return place;
}

}  // namespace
}  // namespace heteroperf
