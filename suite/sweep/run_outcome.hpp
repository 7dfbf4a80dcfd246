#pragma once

#include <filesystem>
#include <string>

#include "results/sweep/sweep_index.hpp"

namespace heteroperf {

/// Why nothing can be said of what is in a folder; empty where it can be looked into, or is not
/// there.
std::string why_unreadable(const std::filesystem::path& folder);

/// Why a run's folder holds no complete result; empty where it does.
std::string why_incomplete(const std::filesystem::path& folder);

/// State, exit code and reason of a run as its folder alone tells them: from its records, or, where
/// they are not complete, from the last line of its journal. A run that nobody ended counts as
/// interrupted.
void tell_outcome(const std::filesystem::path& folder, SweepRun& run);

}  // namespace heteroperf
