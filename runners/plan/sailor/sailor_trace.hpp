#pragma once

#include <filesystem>
#include <vector>

#include "runners/plan/sailor/sailor_inputs.hpp"

namespace heteroperf {

/// A trace of available devices: comma-separated, with a heading row; a column "Timestamp" in
/// seconds, and one per device and zone, "A100-40_us-central1-a"; a column without a heading is
/// passed over. Throws UserError with everything wrong, each with its line.
std::vector<SailorAvailability> read_sailor_trace(const std::filesystem::path& file);

}  // namespace heteroperf
