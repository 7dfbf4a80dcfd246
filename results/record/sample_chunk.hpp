#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace heteroperf {

/// The steps that a chunk of a column takes on its way into samples.h5, in this order.
struct ChunkFilters {
  bool shuffle = false, deflate = false;
};

/// The values of a stored chunk: `rows` of `value_bytes` each. Nothing where the stored bytes do
/// not give exactly that many. HDF5's own filters are left aside for foreign archives: they make
/// room for whatever the bytes inflate to, and load others from plug-ins.
std::optional<std::string> chunk_values(std::string_view stored, ChunkFilters filters,
                                        std::size_t rows, std::size_t value_bytes);

}  // namespace heteroperf
