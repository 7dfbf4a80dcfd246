#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "results/sweep/sweep_index.hpp"

namespace heteroperf {

struct RebuiltIndex {
  SweepIndex index;
  std::vector<std::string> warnings;  ///< as of KnownRuns
};

/// The index of a sweep as the runs in its folder tell it: what they were started with, which of
/// those settings are in their folders' names (the point), and how they ended. A run whose journal
/// says nothing any more is known by its name if that can mean one point only. What runs do not
/// tell stands in `SweepIndex::unknown`.
///
/// Throws UserError where no run tells what it was started with, where they are of several sweeps,
/// or where it is ambiguous which settings were swept.
RebuiltIndex rebuild_index(const std::filesystem::path& folder);

}  // namespace heteroperf
