#pragma once

#include <filesystem>
#include <string>

#include "runners/cluster/efficiency_matrix.hpp"

namespace heteroperf {

/// The file format heteroperf-efficiency, version 1 (runners/plan/README.md). Round trips.
std::string efficiency_matrix_text(const EfficiencyMatrix& matrix);
/// Throws UserError with everything wrong, each with its path: unknown keys, wrong types, numbers
/// that are not positive and finite, entries that are there twice, links of unlike directions.
EfficiencyMatrix parse_efficiency_matrix(const std::string& text, const std::string& origin);
EfficiencyMatrix read_efficiency_matrix(const std::filesystem::path& file);

}  // namespace heteroperf
