#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace heteroperf {

/// The checkpoints of one run: `<run>/checkpoints/step-120/`, …
struct CheckpointPlace {
  std::filesystem::path folder;
  std::uint64_t step = 0;
};

/// "…/checkpoints/step-120" of the run in `run_folder`.
std::filesystem::path checkpoint_folder(const std::filesystem::path& run_folder,
                                        std::uint64_t step);

/// The newest first, broken ones too; none where there is no such folder.
std::vector<CheckpointPlace> list_checkpoints(const std::filesystem::path& run_folder);

/// The newest checkpoint that is whole and matches its checksums (all data are read), at `step`
/// where that is given. Each newer one that is not adds a warning. Throws UserError when none is
/// left, with everything that is wrong with those there are.
CheckpointPlace last_good_checkpoint(const std::filesystem::path& run_folder,
                                     std::optional<std::uint64_t> step,
                                     std::vector<std::string>& warnings);

/// Removes all but the newest `keep` (0: removes none) and what interrupted saves left. What the
/// system refuses to remove is a warning.
void prune_checkpoints(const std::filesystem::path& run_folder, std::uint64_t keep,
                       std::vector<std::string>& warnings);

}  // namespace heteroperf
