#pragma once

#include <string>

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

}  // namespace heteroperf
