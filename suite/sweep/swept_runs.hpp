#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "suite/sweep/run_words.hpp"

namespace heteroperf {

/// A folder that is named as one of a sweep's runs, and what its journal says of its command.
struct SweptRun {
  std::string folder;      ///< in the sweep's own
  std::size_t number = 0;  ///< its place in the order of the runs, from 1
  std::string run_id, created_utc;
  std::optional<SweepRunWords> words;
  std::string silence;  ///< why its journal tells no command; empty where it does
  std::string foreign;  ///< why it is no run of this folder's sweep; empty where it may be one
};

/// Folders named "001-…" in `folder`, in the order of their names.
std::vector<SweptRun> swept_runs(const std::filesystem::path& folder);

/// The sweep that a path means though its sweep.json be damaged or gone: a folder with a sweep.json
/// of whatever content, or with folders that are named as a sweep's runs and no run of its own; or
/// the sweep.json of such a folder.
std::optional<std::filesystem::path> damaged_sweep_of(const std::filesystem::path& path);

}  // namespace heteroperf
