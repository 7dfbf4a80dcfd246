#pragma once

#include <algorithm>
#include <cstdint>

#include "runners/engine/kernels/kernel_table.hpp"

namespace heteroperf {

/// Kernels on the memory of a CUDA device, queued on LibTorch's current stream.
///
/// `table` differs from a CPU's table in this: one call covers all rows (range.begin is 0) and has
/// as many threads as it needs; "partial" arguments are arrays of one row per block of
/// device_rows_per_block() rows.
/// Calls return as soon as the work is queued; only `wait` blocks.
struct DeviceKernels {
  const KernelTable& (*table)(Element);
  /// Waits until all work of the calling thread's current stream of device `index` is done. Throws
  /// SystemError.
  void (*wait)(int index);
};

/// A device's sums over rows are cut into row blocks whose number depends on the shape alone, so
/// that the order of every sum, and with it its bits, is the same run after run. There are enough
/// blocks to fill a large device even where there are few columns.
constexpr std::int64_t device_rows_per_block(std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t wanted_tiles = 1024, tile_columns = 32, least_rows = 32, most_blocks = 256;
  // Columns alone may already fill the device; otherwise more blocks of rows do.
  const std::int64_t tiles = std::max<std::int64_t>(1, (columns + tile_columns - 1) / tile_columns);
  const std::int64_t blocks = std::clamp(wanted_tiles / tiles, std::int64_t{1}, most_blocks);
  return std::max(least_rows, (rows + blocks - 1) / blocks);
}

const DeviceKernels& cuda_kernels();

}  // namespace heteroperf
