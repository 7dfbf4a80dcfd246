#pragma once

#include <cstdint>

#include "runners/engine/kernels/kernel_table.hpp"
#include "runners/engine/kernels/optimizer_kernels.hpp"

namespace heteroperf {

/// Kernels on the memory of a CUDA device, queued on LibTorch's current stream.
///
/// `table` differs from a CPU's table in this: one call covers all rows (range.begin is 0) and has
/// as many threads as it needs; "partial" arguments are arrays of one row per block of
/// device_rows_per_block() rows.
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
  /// Until all that the calling thread's current stream of device `index` was given is done. Throws
  /// SystemError.
  void (*wait)(int index);
};

constexpr std::int64_t square_sum_blocks = 1024;

const DeviceKernels& cuda_kernels();

}  // namespace heteroperf
