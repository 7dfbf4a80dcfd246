// Reads the values of one stored chunk of samples.h5 without HDF5's own filters. An archive may be
// a stranger's, and those filters would allocate whatever length the compressed bytes claim, or
// load a plug-in that the file names. Here the length is known beforehand from the rows, and a
// chunk that does not inflate to exactly that length is refused.
#include "results/record/sample_chunk.hpp"

#include <zlib.h>

namespace heteroperf {
namespace {

/// Inflates into a buffer of the expected size; nothing where the result has another one.
std::optional<std::string> inflated_chunk(std::string_view stored, std::size_t bytes) {
  std::string values(bytes, '\0');
  uLongf size = bytes;
  const int result = uncompress(reinterpret_cast<Bytef*>(values.data()), &size,
                                reinterpret_cast<const Bytef*>(stored.data()), stored.size());
  if (result != Z_OK || size != bytes) return std::nullopt;
  return values;
}

/// Undoes the shuffle filter, which puts the first bytes of all values first, then all second
/// bytes, and so on, since such runs of bytes compress better.
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
