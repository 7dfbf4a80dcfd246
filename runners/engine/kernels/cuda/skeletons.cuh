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

/// Neighbouring values of one operand, of the row that a thread works on.
template <class V, int n>
struct Lanes {
  V of[n];
};
template <int n, class View>
__device__ auto load_lanes(const View& view, std::int64_t pack) {
  Lanes<decltype(view.load(0)), n> lanes;
  for (int k = 0; k < n; ++k) lanes.of[k] = view.load(pack * n + k);
  return lanes;
}
template <int n, class T>
__device__ auto load_lanes(const ReadView<T>& view, std::int64_t pack) {
  Lanes<decltype(view.load(0)), n> lanes;
  const Pack<T, n> from = load<n>(view.at, pack);
  for (int k = 0; k < n; ++k) lanes.of[k] = widen(from.at[k]);
  return lanes;
}
template <int n, class T>
__device__ auto load_lanes(const WriteView<T, true>& view, std::int64_t pack) {
  return load_lanes<n>(ReadView<T>{view.at}, pack);
}
template <int n, class View, class V>
__device__ void store_lanes(const View&, std::int64_t, const Lanes<V, n>&) {}
template <int n, class T, bool update, class V>
__device__ void store_lanes(const WriteView<T, update>& view, std::int64_t pack,
                            const Lanes<V, n>& lanes) {
  Pack<T, n> to;
  for (int k = 0; k < n; ++k) to.at[k] = narrow<T>(lanes.of[k]);
  keep<n>(view.at, pack, to);
}
template <int n, class F, class... Views>
__device__ void apply_pack(const F& f, std::int64_t pack, Views... views) {
  [&](auto... lanes) {
    for (int k = 0; k < n; ++k) f(lanes.of[k]...);
    (store_lanes<n>(views, pack, lanes), ...);
  }(load_lanes<n>(views, pack)...);
}

// Packs do not cross rows: columns are a multiple of their width.
template <int n, class F, class... Operands>
__global__ void map_matrix(std::int64_t rows, std::int64_t packs, F f, Operands... operands) {
  HETEROPERF_FOR_MATRIX(row, rows, pack, packs) {
    apply_pack<n>(f, pack, operands.row(row, packs * n)...);
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

/// Writes a column's sum into the row of the block.
template <class T, bool mean, class V>
__device__ void store_sum(const ColumnSum<T, mean>& operand, std::int64_t at, V value,
                          std::int64_t rows) {
  operand.at[at] = mean ? value / static_cast<T>(rows) : value;
}
// Threads beyond the last column take part in the sums of the tile with zeros.
template <class F, class... Operands>
__global__ void sum_tiles(std::int64_t rows, std::int64_t columns, std::int64_t rows_per_block, F f,
                          Operands... operands) {
  const std::int64_t first = std::int64_t{blockIdx.y} * rows_per_block;
  const std::int64_t last = first + rows_per_block < rows ? first + rows_per_block : rows;
  const std::int64_t c = std::int64_t{blockIdx.x} * tile_columns + threadIdx.x;
  const std::int64_t of_block = std::int64_t{blockIdx.y} * columns + c;
  [&](auto... values) {
    for (std::int64_t row = first + threadIdx.y; c < columns && row < last; row += tile_rows) {
      const auto renew = [&](const auto& operand, auto& value) {
        using O = std::remove_cvref_t<decltype(operand)>;
        if constexpr (O::sum) return;
        value = O::per_block ? operand.row(0, 0).load(of_block) : operand.row(row, columns).load(c);
      };
      (renew(operands, values), ...);
      f(values...);
      const auto store = [&](const auto& operand, const auto& value) {
        if constexpr (!std::remove_cvref_t<decltype(operand)>::sum) {
          operand.row(row, columns).store(c, value);
        }
      };
      (store(operands, values), ...);
    }
    const auto finish = [&](const auto& operand, auto value) {
      if constexpr (std::remove_cvref_t<decltype(operand)>::sum) {
        value = sum_tile(value);
        if (c < columns && threadIdx.y == 0) store_sum(operand, of_block, value, last - first);
      }
    };
    (finish(operands, values), ...);
  }(decltype(operands.row(0, 0).load(0))()...);
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

/// One row, worked on by all threads of a block.
struct DeviceRow {
  std::int64_t index, columns;

  template <class A, class Term>
  __device__ A sum(Term term) const {
    A sum = 0;
    HETEROPERF_FOR_COLUMNS(c, columns) sum += term(c);
    return join_block(sum, [](A a, A b) { return a + b; });
  }
  template <class A, class Add>
  __device__ TwoSums<A> sums(Add add) const {
    A first = 0, second = 0;
    HETEROPERF_FOR_COLUMNS(c, columns) add(c, first, second);
    const auto plus = [](A a, A b) { return a + b; };
    first = join_block(first, plus);
    return {first, join_block(second, plus)};
  }
  template <class A, class Value>
  __device__ A largest(Value value) const {
    A top = value(0);
    HETEROPERF_FOR_COLUMNS(c, columns) top = value(c) > top ? value(c) : top;
    // A NaN on the left stays.
    return join_block(top, [](A a, A b) { return b > a ? b : a; });
  }
  template <class Action>
  __device__ void each(Action action) const {
    HETEROPERF_FOR_COLUMNS(c, columns) action(c);
  }
  template <class Action>
  __device__ void each(std::int64_t groups, std::int64_t count, Action action) const {
    HETEROPERF_FOR_COLUMNS(i, groups * count) action(i / count, i % count);
  }
  __device__ void wait() const { __syncthreads(); }
  __device__ bool leads() const { return threadIdx.x == 0; }
};
using Row = DeviceRow;

template <class Body>
__global__ void work_on_rows(std::int64_t rows, std::int64_t columns, Body body) {
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) body(Row{row, columns});
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

template <class Walk, class Add, class Finish, class One, class Two, class... Results>
__global__ void fold_elements(std::int64_t rows, std::int64_t columns, Walk walk, Add add,
                              Finish finish, One one, Two two, Results... results) {
  HETEROPERF_FOR_MATRIX(row, rows, c, columns) {
    [&](auto... values) {
      walk(walk.place(row), [&](std::int64_t other, auto step) {
        add(one.row(other, columns).load(c), two.row(other, columns).load(c), step, values...);
      });
      finish(values...);
      (results.row(row, columns).store(c, values), ...);
    }(results.row(row, columns).load(c)...);
  }
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
template <class Walk, class Add, class Finish, class One, class Two, class... Results>
void fold(FoldRange r, Walk walk, Add add, Finish finish, One one, Two two, Results... results) {
  if (r.end * r.columns == 0) return;
  if constexpr (Walk::joins) {
    launch(fold_tiles<Walk, Add, Finish, One, Two, Results...>, over_tiles(r.columns, r.end),
           r.columns, walk, add, finish, one, two, results...);
  } else {
    launch_matrix(fold_elements<Walk, Add, Finish, One, Two, Results...>, r.end, r.columns, walk,
                  add, finish, one, two, results...);
  }
}

}  // namespace
}  // namespace heteroperf
