#pragma once

#include <cmath>
#include <compare>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "metrics/base/quantity.hpp"

namespace heteroperf {

/// The bandwidth of a link depends on the size x of a message: a·g² + b·g + c GB/s with
/// g = log2(x / 10⁶).
struct SailorCurve {
  double a = 0, b = 0, c = 0;
  double bytes_per_second(double bytes) const {
    const double g = std::log2(bytes / 1e6);
    return ((a * g + b) * g + c) * 1e9;
  }
  /// Infinity where the curve falls to zero or below.
  double seconds(double bytes) const {
    const double rate = bytes_per_second(bytes);
    return rate > 0 ? bytes / rate : std::numeric_limits<double>::infinity();
  }
  friend bool operator==(const SailorCurve&, const SailorCurve&) = default;
};

/// One side of a link: `devices` of a node send or receive together.
struct SailorLinkEnd {
  std::string zone, device;
  int devices = 1;
  friend auto operator<=>(const SailorLinkEnd&, const SailorLinkEnd&) = default;
};

/// One layer on one tensor-parallel rank. All are counted in values of 4 bytes.
struct SailorLayer {
  double parameters = 0;
  double output = 0;  ///< values per sample that go to the next layer
  double kept = 0;    ///< activations per sample that wait for the backward pass
  friend bool operator==(const SailorLayer&, const SailorLayer&) = default;
};

struct SailorTiming {
  double forward_s = 0, backward_s = 0, update_s = 0;
  friend bool operator==(const SailorTiming&, const SailorTiming&) = default;
};

/// One model's layers and their profiles, every list by layer.
struct SailorModel {
  std::string name;
  std::map<int, std::vector<SailorLayer>> layers;  ///< by tensor-parallel degree; 1 is there
  using Profiles = std::map<std::pair<std::int64_t, int>, std::vector<SailorTiming>>;
  std::map<std::string, Profiles> profiles;  ///< by device, then (micro-batch, degree)
  int size() const { return static_cast<int>(layers.at(1).size()); }
};

struct SailorDevice {
  int per_node = 1;
  Bytes memory;
  friend bool operator==(const SailorDevice&, const SailorDevice&) = default;
};

struct SailorTraining {
  std::string model;
  std::int64_t global_batch = 1;
};

/// The files that describe one training to Sailor (Strati et al. 2025, arXiv:2504.17096).
struct SailorInputs {
  SailorTraining training;
  SailorModel model;  ///< the model that `training` names
  std::map<std::string, SailorDevice> devices;
  std::string zone;  ///< the zone of machines that name none
  /// Links between nodes. Some are there in one direction alone: plans that need the other
  /// direction cannot run.
  std::map<std::pair<SailorLinkEnd, SailorLinkEnd>, SailorCurve> network;
};

/// A folder of Sailor's files: `profiles.json`, `llm_info.json`, `multizone_bandwidths_het.json`,
/// `basic_cluster_config.json` and a training configuration.
struct SailorFiles {
  std::filesystem::path folder;
  /// Empty: the folder's training_config*.json of `model`.
  std::filesystem::path training = {};
  std::string model = {};  ///< empty: the folder's only one
};

/// Throws UserError with everything wrong, each with file and path in it: missing and unreadable
/// files, a model that is not profiled or trained (with the nearest), layers left out, times that
/// are negative or not finite, units that contradict each other (bytes that are not four times the
/// values, bandwidth curves in another unit than the peak beside them, memory in GB).
SailorInputs read_sailor_inputs(const SailorFiles& files);

/// The text of a file of Sailor's. Throws UserError also for a file of ours.
std::string read_sailor_text(const std::filesystem::path& file);

}  // namespace heteroperf
