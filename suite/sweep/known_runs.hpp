#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "results/sweep/sweep_index.hpp"

namespace heteroperf {

/// A run whose place in its sweep is known.
struct KnownRun {
  std::string folder;
  std::size_t number = 0;  ///< in the order of the runs, from 1
  SweepPoint point;
  std::uint64_t seed = 0;
  std::string run_id, created_utc;  ///< empty where its journal tells nothing
};

struct KnownRuns {
  std::vector<std::string> command;  ///< as of the sweep's index
  std::vector<KnownRun> runs;        ///< by number; at least one, none of them twice
  /// Folders that look like runs of it and are left out, and runs that may be of another sweep.
  std::vector<std::string> warnings;
};

/// The runs of the sweep in `folder`: their settings and seeds as their journals begin with, of
/// which those that their folders are named after are the point. A run whose journal does not tell
/// is known by its name where that can mean one point only. Throws UserError as rebuild_index().
KnownRuns known_runs(const std::filesystem::path& folder);

}  // namespace heteroperf
