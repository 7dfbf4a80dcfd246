#pragma once

#include <algorithm>
#include <cstdint>

namespace heteroperf {

/// How a device's sums over rows are cut: row blocks whose number depends on the shape alone, so
/// that the order of every sum, and with it its bits, is the same run after run. Enough of them to
/// fill a large device even where there are few columns.
constexpr std::int64_t device_rows_per_block(std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t wanted_tiles = 1024, tile_columns = 32, least_rows = 32, most_blocks = 256;
  const std::int64_t tiles = std::max<std::int64_t>(1, (columns + tile_columns - 1) / tile_columns);
  const std::int64_t blocks = std::clamp(wanted_tiles / tiles, std::int64_t{1}, most_blocks);
  return std::max(least_rows, (rows + blocks - 1) / blocks);
}

}  // namespace heteroperf
