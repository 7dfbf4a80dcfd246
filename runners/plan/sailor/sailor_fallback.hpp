#pragma once

#include <string>
#include <vector>

#include "runners/plan/sailor/sailor_inputs.hpp"

namespace heteroperf {

/// A profile that one device lacks and another has, of the same model.
struct MissingProfile {
  std::string device;
  std::int64_t micro_batch = 1;
  int tensor = 1;
  friend auto operator<=>(const MissingProfile&, const MissingProfile&) = default;
};
/// "V100-16 tp1 micro-batch 8".
std::string to_string(const MissingProfile& missing);

/// Among the devices named, in degrees that a node has room for and the layers are described for.
std::vector<MissingProfile> missing_profiles(const SailorInputs& inputs,
                                             const std::vector<std::string>& devices);

/// Analytic stand-ins: of the same degree and the nearest size, times in proportion to the samples;
/// else of the nearest degree, divided by the ratio of degrees; updates as they are. What a device
/// without any profile would need stays missing. Returns what was filled.
std::vector<MissingProfile> fill_profiles(const std::vector<MissingProfile>& missing,
                                          SailorInputs& inputs);

}  // namespace heteroperf
