#pragma once

#include <filesystem>
#include <string>

#include "runners/plan/sailor/sailor_inputs.hpp"

namespace heteroperf {

/// Where Sailor's files lie; a name without a folder is looked for in `folder`.
struct SailorFiles {
  std::filesystem::path folder;
  /// Empty: the folder's only training_config*.json.
  std::filesystem::path training;
  std::filesystem::path profiles = "profiles.json", layers = "llm_info.json";
  std::filesystem::path network = "multizone_bandwidths_het.json";
  std::filesystem::path devices = "basic_cluster_config.json";
  std::filesystem::path within_node = "intra_node_bandwidths.json";  ///< may be missing
};

/// Throws UserError with everything wrong, each with file and path in it: missing and unreadable
/// files, a model that is not profiled (with the nearest), layers left out, times that are negative
/// or not finite, units that contradict each other (bytes that are not four times the values,
/// bandwidth curves in another unit than the peak beside them, memory in GB).
SailorInputs read_sailor_inputs(const SailorFiles& files);

/// The training configuration of that model among the folder's training_config*.json. Throws
/// UserError naming the models that there are.
std::filesystem::path sailor_training_of(const std::filesystem::path& folder,
                                         const std::string& model);

}  // namespace heteroperf
