#pragma once

#include <algorithm>
#include <cstdint>

#include "runners/engine/kernels/kernel_table.hpp"
#include "runners/engine/kernels/optimizer_kernels.hpp"

namespace heteroperf {

/// Kernels on the memory of a CUDA device, queued on LibTorch's current stream.
///
/// `table` differs from a CPU's table in this: one call covers all rows (range.begin is 0) and has
/// as many threads as it needs; "partial" arguments are arrays of one row per block of
/// device_rows_per_block() rows.
/// Calls return as soon as the work is queued; only `wait` blocks.
struct DeviceKernels {
  const KernelTable& (*table)(Element);
  /// As in optimizer_kernels.hpp; float32 or float64.
  void (*adamw_update)(Element, void* weight, const void* gradient, void* first, void* second,
                       std::int64_t count, const AdamwScalars&);
  void (*sgd_update)(Element, void* weight, const void* gradient, void* velocity,
                     std::int64_t count, const SgdScalars&);
  /// *sum += Σ x², in float64 and in an order that depends on `count` alone. `partials`: room for
  /// square_sum_blocks doubles on the device.
  void (*add_square_sum)(Element, const void* values, std::int64_t count, double* partials,
                         double* sum);
  /// Waits until all work of the calling thread's current stream of device `index` is done. Throws
  /// SystemError.
  void (*wait)(int index);
};

constexpr std::int64_t square_sum_blocks = 1024;

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
