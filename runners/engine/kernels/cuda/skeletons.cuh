#pragma once

// The skeletons of a CUDA device: how the threads of a grid share the elements of a kernel.
//
// Element-wise kernels load and store packs of 16 bytes where size and addresses allow, because
// they do little else than move memory. Everything that sums has a fixed order: floating-point sums
// depend on it, and atomic additions have none. So every sum is a tree or a list whose shape
// follows from the launch alone: within a warp by exchanging registers, between warps and between
// the rows of a tile through shared memory, and between blocks of threads by a second kernel. A
// *tile* is 32 neighbouring columns by a block of rows; its 8 rows of threads go down the rows, and
// neighbouring threads read neighbouring columns. A fold is written from the side of its output: a
// thread owns an element and gathers all that belongs to it.
#include "runners/engine/kernels/cuda/device_kernels.hpp"
#include "runners/engine/kernels/cuda/launch.cuh"
#include "runners/engine/kernels/operands.hpp"

namespace heteroperf {
namespace {

// ---------------------------------------------------------------- map

/// Neighbouring elements that one instruction moves, or two where they have more than 16 bytes.
template <class T, int n>
struct alignas(n * sizeof(T) < 16 ? n * sizeof(T) : 16) Pack {
  T at[n];
};
/// A thread's own part of one operand: the value of a row, or a pack of elements, from which it
/// loads and in which it stores before they go back to memory.
template <int n, class View>
struct Own {
  View of;
  __device__ Own(const View& row, std::int64_t) : of(row) {}
  __device__ View view() const { return of; }
  __device__ void give_back() const {}
};
template <int n, class T, Begins begins>
struct Own<n, RowView<T, begins>> {
  using Elements = Pack<std::remove_const_t<T>, n>;
  Elements *there, here;
  __device__ Own(const RowView<T, begins>& row, std::int64_t pack)
      : there(as<Elements>(const_cast<std::remove_const_t<T>*>(row.at)) + pack), here(*there) {}
  __device__ RowView<T, begins> view() { return {here.at}; }
  __device__ void give_back() const {
    if constexpr (!std::is_const_v<T>) *there = here;
  }
};

// Packs do not cross rows: columns are a multiple of their width.
template <int n, class F, class... Operands>
__global__ void map_matrix(std::int64_t rows, std::int64_t packs, F f, Operands... operands) {
  HETEROPERF_FOR_MATRIX(row, rows, pack, packs) {
    [&](auto... own) {
      for (int k = 0; k < n; ++k) apply(f, k, own.view()...);
      (own.give_back(), ...);
    }(Own<n, decltype(operands.row(0, 0))>(operands.row(row, packs * n), pack)...);
  }
}

/// f on every element. What is written may be what is read: a thread reads before it writes. A dense
/// matrix is one long row.
template <class T, class F, class... Operands>
void map(RowRange r, F f, Operands... operands) {
  constexpr bool dense = (Operands::dense && ...);
  const std::int64_t rows = dense ? 1 : r.end, columns = dense ? r.end * r.columns : r.columns;
  const auto run = [&](auto width) {
    constexpr int n = decltype(width)::value;
    launch_matrix(map_matrix<n, F, Operands...>, rows, columns / n, f, operands...);
  };
  const bool packs = columns % pack_width<T> == 0 && (operands.aligned() && ...);
  packs ? run(Fixed<pack_width<T>>()) : run(Fixed<1>());
}

// ---------------------------------------------------------------- sums over rows

/// Tiles of columns × blocks of rows.
constexpr unsigned tile_columns = 32, tile_rows = 8;

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
inline LaunchShape over_tiles(std::int64_t columns, std::int64_t blocks) {
  return {static_cast<unsigned>(divided_up(columns, tile_columns)), static_cast<unsigned>(blocks),
          tile_columns, tile_rows};
}

// Threads beyond the last column take part in the sums of the tile with zeros.
template <class F, class... Operands>
__global__ void sum_tiles(std::int64_t rows, std::int64_t columns, std::int64_t rows_per_block, F f,
                          Operands... operands) {
  const std::int64_t block = blockIdx.y, first = block * rows_per_block;
  const std::int64_t last = first + rows_per_block < rows ? first + rows_per_block : rows;
  const std::int64_t c = std::int64_t{blockIdx.x} * tile_columns + threadIdx.x;
  const ColumnPart part{first + threadIdx.y, c < columns ? last : 0, tile_rows, c, columns, block,
                        last - first};
  sum_column(part, c < columns && threadIdx.y == 0, f, [](auto sum) { return sum_tile(sum); },
             operands...);
}
/// f on every element, and sums over each block of device_rows_per_block() rows.
template <class F, class... Operands>
void sum_columns(RowRange r, F f, Operands... operands) {
  if (r.end * r.columns == 0) return;
  const std::int64_t per_block = device_rows_per_block(r.end, r.columns);
  launch(sum_tiles<F, Operands...>, over_tiles(r.columns, divided_up(r.end, per_block)), r.end,
         r.columns, per_block, f, operands...);
}

// ---------------------------------------------------------------- rows

/// One value of every thread of a one-dimensional block, joined; the result on all of them. All
/// threads call it. The order depends on the block's size alone.
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

/// The threads of a block, which share a row's columns.
struct BlockThreads {
  __device__ static std::int64_t first() { return threadIdx.x; }
  __device__ static std::int64_t step() { return blockDim.x; }
  template <class A, class Join>
  __device__ static A join(A value, Join join) {
    return join_block(value, join);
  }
  __device__ static void wait() { __syncthreads(); }
  __device__ static bool leads() { return threadIdx.x == 0; }
  template <class T>
  __device__ static void copy(const T* from, T* to, std::int64_t count) {
    for (std::int64_t i = first(); i < count; i += step()) to[i] = from[i];
  }
  template <class A, class Term>
  __device__ static A lane_sum(std::int64_t count, Term term) {
    A sum = 0;
    for (std::int64_t i = first(); i < count; i += step()) sum += term(i);
    return join(sum, [](A a, A b) { return a + b; });
  }
  template <class Action>
  __device__ static void each_of(std::int64_t groups, std::int64_t count, Action action) {
    for (std::int64_t i = first(); i < groups * count; i += step()) action(i / count, i % count);
  }
};
using Row = RowOf<BlockThreads>;

template <class Body>
__global__ void work_on_rows(std::int64_t rows, std::int64_t columns, Body body) {
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) body(Row{{}, row, columns});
}
/// body(Row) on every row, up to a grid's limit at a time.
template <class Body>
void rows(RowRange r, Body body) {
  if (r.end * r.columns == 0) return;
  launch(work_on_rows<Body>, over_rows(r.end, r.columns), r.end, r.columns, body);
}
/// Sums over rows want tiles, and those within rows blocks of threads: two kernels.
constexpr bool rows_sum_columns = false;

// ---------------------------------------------------------------- folds

template <class... Description>
__global__ void fold_elements(std::int64_t rows, std::int64_t columns, Description... description) {
  HETEROPERF_FOR_MATRIX(row, rows, c, columns) fold_element(row, c, columns, description...);
}
// Long walks over few elements: a tile's rows of threads take every eighth step each.
template <class Walk, class Add, class Finish, class One, class Two, class Result>
__global__ void fold_tiles(std::int64_t columns, Walk walk, Add add, Finish finish, One one,
                           Two two, Result result) {
  const std::int64_t c = std::int64_t{blockIdx.x} * tile_columns + threadIdx.x;
  const std::int64_t row = blockIdx.y;
  auto value = decltype(result.row(0, 0).load(0))();
  unsigned turn = 0;
  walk(walk.place(row), [&](std::int64_t other, auto step) {
    if (turn++ % tile_rows != threadIdx.y || c >= columns) return;
    add(one.row(other, columns).load(c), two.row(other, columns).load(c), step, value);
  });
  value = sum_tile(value);
  if (c >= columns || threadIdx.y != 0) return;
  finish(value);
  result.row(row, columns).store(c, value);
}
/// See host_skeletons.hpp. The range is whole.
template <class Walk, class... Description>
void fold(FoldRange r, Walk walk, Description... description) {
  if (r.end * r.columns == 0) return;
  if constexpr (Walk::joins) {
    launch(fold_tiles<Walk, Description...>, over_tiles(r.columns, r.end), r.columns, walk,
           description...);
  } else {
    launch_matrix(fold_elements<Walk, Description...>, r.end, r.columns, walk, description...);
  }
}

}  // namespace
}  // namespace heteroperf
