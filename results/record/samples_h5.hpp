#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "results/journal/journal.hpp"

namespace heteroperf {

/// True when HDF5 is built in.
bool samples_h5_built();
/// Version of the HDF5 library in use ("1.10.8"); empty when it is not built in.
std::string hdf5_version();

/// Writes samples.h5, the journal's rows as columns, to a temporary name and renames it. `record`
/// is the text of record.json. Throws SystemError (also when HDF5 is not built in).
void write_samples_h5(const std::string& path, const Journal& journal, const std::string& record);

/// Compares the archive's columns with the journal and its record text with `record`. Returns an
/// empty text when they agree, else the first difference, or HDF5's words where the file cannot be
/// read. Throws nothing for what a file holds.
std::string compare_samples_h5(const std::string& path, const Journal& journal,
                               const std::string& record);

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
