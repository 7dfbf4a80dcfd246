#include "results/sample_chunk.hpp"

#include <zlib.h>

namespace heteroperf {
namespace {

std::optional<std::string> inflated_chunk(std::string_view stored, std::size_t bytes) {
  std::string values(bytes, '\0');
  uLongf size = bytes;
  const int result = uncompress(reinterpret_cast<Bytef*>(values.data()), &size,
                                reinterpret_cast<const Bytef*>(stored.data()), stored.size());
  if (result != Z_OK || size != bytes) return std::nullopt;
  return values;
}

/// Shuffled, the first bytes of all values come first, then all second bytes, and so on.
std::string in_value_order(std::string_view shuffled, std::size_t rows, std::size_t value_bytes) {
  std::string values(shuffled.size(), '\0');
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t i = 0; i < value_bytes; ++i) {
      values[row * value_bytes + i] = shuffled[i * rows + row];
    }
  }
  return values;
}

}  // namespace

std::optional<std::string> chunk_values(std::string_view stored, ChunkFilters filters,
                                        std::size_t rows, std::size_t value_bytes) {
  std::optional<std::string> values(stored);
  if (filters.deflate) values = inflated_chunk(stored, rows * value_bytes);
  if (!values || values->size() != rows * value_bytes) return std::nullopt;
  if (filters.shuffle) values = in_value_order(*values, rows, value_bytes);
  return values;
}

}  // namespace heteroperf
