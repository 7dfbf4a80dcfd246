#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "metrics/base/quantity.hpp"

namespace heteroperf {

/// Bandwidth of a link by the size x of a message: a·g² + b·g + c GB/s, g = log2(x / 10⁶).
struct SailorCurve {
  double a = 0, b = 0, c = 0;
  double bytes_per_second(double bytes) const;
  /// Infinity where the curve falls to zero or below.
  double seconds(double bytes) const;
  friend bool operator==(const SailorCurve&, const SailorCurve&) = default;
};

/// One side of a link: `devices` of a node send or receive together.
struct SailorLinkEnd {
  std::string zone, device;
  int devices = 1;
  friend auto operator<=>(const SailorLinkEnd&, const SailorLinkEnd&) = default;
};

/// What one tensor-parallel rank has of a layer, in values of 4 bytes, per sample.
struct SailorLayer {
  double parameters = 0;  ///< not per sample
  double output = 0;      ///< sent to the next layer
  double kept = 0;        ///< activations kept for the backward pass
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
  std::int64_t global_batch = 1, sequence_length = 1, hidden_size = 1, heads = 1, vocabulary = 1;
};

/// The files that describe one training to Sailor (Strati et al. 2025, arXiv:2504.17096).
struct SailorInputs {
  SailorTraining training;
  SailorModel model;  ///< the one of `training`
  std::map<std::string, SailorDevice> devices;
  std::string zone;  ///< of machines that name none
  std::map<std::pair<SailorLinkEnd, SailorLinkEnd>, SailorCurve> network;  ///< between nodes
  /// Those of them that are there in one direction alone, as text: a plan that needs the other one
  /// is refused.
  std::vector<std::string> one_way_links;
  std::map<std::pair<std::string, int>, SailorCurve> within_node;  ///< by device and their number
};

/// Devices there are at one time of a trace.
struct SailorAvailability {
  double time_s = 0;
  std::map<std::pair<std::string, std::string>, int> devices;  ///< by (device, zone)
};

}  // namespace heteroperf
