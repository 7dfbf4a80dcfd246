#pragma once

#include <filesystem>
#include <vector>

#include "results/record/verify.hpp"

namespace heteroperf {

/// One check per checkpoint that a run, or a run of a suite, still has: whole, as its checksums
/// say, of the journal's model, as large as its line says, and among the journal's checkpoints.
/// Reads all of their data.
std::vector<VerifyCheck> check_checkpoints(const std::filesystem::path& path);

}  // namespace heteroperf
