#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "metrics/base/quantity.hpp"

namespace heteroperf {

/// One file of a Metis profile folder: a device class, a tensor-parallel degree, a batch size.
struct MetisProfile {
  std::vector<double> compute_s;  ///< forward and backward, by layer
  std::vector<Bytes> memory;      ///< by layer
  double forward_backward_s = 0, optimizer_s = 0, batch_generation_s = 0;
  friend bool operator==(const MetisProfile&, const MetisProfile&) = default;
};

/// The profiles that Metis (Um et al., ATC 2024) has of a model on some devices.
struct MetisProfiles {
  std::string model;                             ///< name in the files; may be empty
  std::map<int, std::vector<Bytes>> parameters;  ///< by degree, then layer, as the files say
  std::map<std::string, std::map<std::pair<int, std::int64_t>, MetisProfile>> classes;
  int layers() const;
};

/// Reads every `DeviceType.NAME_tpT_bsB.json` of a folder; milliseconds and megabytes (2²⁰) become
/// seconds and bytes. Throws UserError with everything wrong: a folder without profiles, names that
/// are none, negative times, layers or parameters of another model than the rest,
/// times of the layers that add up to more than the whole ten times over (another unit).
MetisProfiles read_metis_profiles(const std::filesystem::path& folder);

}  // namespace heteroperf
